"""Chromium, driven by Selenium, as the tests of the page use it."""

import importlib.util
import shutil
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, HIGH = 1600, 1000
PATIENCE = 10  # seconds until the page must have done what it was asked for


def missing() -> str:
    """Why there is no browser here; "" if there is one."""
    if importlib.util.find_spec("selenium") is None:
        return "needs Selenium: pip install minductor[browser]"
    if not any(map(shutil.which, NAMES)) or not shutil.which("chromedriver"):
        return "needs Chromium and its driver: the packages chromium and chromium-driver"
    return ""


class Browser:
    """A page in Chromium. `pictures`: the folder of pictures, or "" for none."""

    def __init__(self, pictures: str) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        # Without a network: a page that loads something from elsewhere shows an error in its console.
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"):
            options.add_argument(flag)
        options.add_argument(f"--window-size={WIDE},{HIGH}")
        options.binary_location = next(filter(None, map(shutil.which, NAMES)))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.pictures = Path(pictures) if pictures else None

    def open(self, path: Path, theme: str = "light") -> None:
        """Opens a page."""
        self.driver.get("about:blank")
        self.driver.get(path.as_uri())
        self.run("document.documentElement.dataset.theme = arguments[0]", theme)
        self.wait("return document.querySelector('.r') !== null")

    def run(self, script: str, *args: Any) -> Any:
        """What a script gives."""
        return self.driver.execute_script(script, *args)

    def wait(self, script: str, *args: Any) -> Any:
        """What a script gives, once that is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.run(script, *args)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return found

    def find(self, selector: str, text: str = "") -> Any:
        """The first element of a selector whose text has `text` in it."""
        found = self.wait(
            "return [...document.querySelectorAll(arguments[0])].find((e) => e.textContent.includes(arguments[1]))",
            selector,
            text,
        )
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        return found

    def click(self, selector: str, text: str = "") -> Any:
        """Clicks the first element of a selector whose text has `text` in it; of a line the text, not the number."""
        from selenium.webdriver.common.action_chains import ActionChains

        element = self.find(selector, text)
        inner = self.run("return arguments[0].querySelector(':scope > code') || arguments[0]", element)
        wide = self.run("return inner = arguments[0].getBoundingClientRect().width", inner)
        ActionChains(self.driver).move_to_element_with_offset(
            inner, int(min(40, wide / 2) - wide / 2), 0
        ).click().perform()
        return element

    def point(self, selector: str, text: str = "") -> None:
        """Moves the mouse over an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).move_to_element(self.find(selector, text)).perform()

    def keys(self, text: str) -> None:
        """Presses keys, where the keyboard is."""
        self.driver.switch_to.active_element.send_keys(text)

    def tab(self, name: str) -> None:
        """Shows a tab."""
        self.run('document.querySelector(`.tab[data-tab="${arguments[0]}"]`).click()', name)

    def lit(self, pane: str) -> list[str]:
        """The texts of the lines, nodes or cards of a pane that shine fully, in order."""
        script = """return [...document.querySelectorAll(`[data-view="${arguments[0]}"] .lit`)]
            .map((each) => (each.querySelector(':scope > code') || each).textContent)"""
        return self.run(script, pane)

    def text(self, selector: str) -> str:
        """The text of the first element of a selector."""
        return self.wait("return document.querySelector(arguments[0])?.textContent", selector)

    def picture(self, name: str, selector: str = "") -> None:
        """Saves a picture of the window, or of an element, if somebody asked for pictures."""
        if self.pictures is None:
            return
        self.pictures.mkdir(parents=True, exist_ok=True)
        time.sleep(0.4)  # what is shown now has been drawn
        file = str(self.pictures / f"{name}.png")
        if selector:
            self.run("return document.querySelector(arguments[0])", selector).screenshot(file)
        else:
            self.driver.save_screenshot(file)
        from PIL import Image  # matplotlib needs it

        Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)

    def errors(self) -> list[str]:
        """What the console has had since it was asked last."""
        return [row["message"] for row in self.driver.get_log("browser") if row["level"] in ("SEVERE", "WARNING")]

    def quit(self) -> None:
        self.driver.quit()
