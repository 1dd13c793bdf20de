"""Options: what is accepted, who wins, and what enters the store's key."""

import pickle
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.errors import BadOptionValue, UnknownMode, UnknownOption
from minductor.options import MODES, OPTION_RULES, RENAMED, OptionRule, Options, check_extra


def other_value(name: str, rule: OptionRule, value: object) -> object:
    if rule.allowed:
        return next((choice for choice in rule.allowed if choice != value), value)
    if rule.freeze is not None:
        return {"variant": (("k1", "looped"),), "size_hints": (8, 64)}[name]
    if rule.type is bool:
        return not value
    if rule.type is int:
        return 12345
    return {"trace": "html:other", "rewrites": "-attention"}.get(name, "other")


def test_defaults_are_accepted_by_their_own_rules() -> None:
    options = Options()
    assert Options.parse(environ={}) == options
    for name, rule in OPTION_RULES.items():
        assert rule.is_accepted(getattr(options, name)) and rule.docs


def test_every_field_but_extra_has_a_rule() -> None:
    assert [field.name for field in fields(Options)] == [*OPTION_RULES, "extra"]


@pytest.mark.parametrize("name", OPTION_RULES)
def test_fingerprint_changes_with_what_changes_text(name: str) -> None:
    rule, options = OPTION_RULES[name], Options()
    value = other_value(name, rule, getattr(options, name))
    if value == getattr(options, name):
        assert len(rule.allowed) == 1
        return
    changed = Options.parse(options={name: value}, environ={})
    assert getattr(changed, name) == value
    assert (changed.fingerprint() != options.fingerprint()) == rule.changes_text


def test_unknown_option_says_what_was_meant() -> None:
    with pytest.raises(UnknownOption, match=r"did you mean 'precision'\?") as caught:
        Options.parse(options={"precison": "fast"}, environ={})
    assert all(name in caught.value.hint for name in OPTION_RULES)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_old_name_of_an_option_names_the_new_one(old: str, new: str) -> None:
    assert old not in OPTION_RULES and new in OPTION_RULES
    with pytest.raises(UnknownOption, match=f"unknown option '{old}'\n.*it was renamed to '{new}'"):
        Options.parse(options={old: getattr(Options(), new)}, environ={})


@pytest.mark.parametrize("name", ["zzz", 3, None])
def test_unknown_option_that_is_like_none_lists_them(name: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        Options.parse(options={name: 1}, environ={})
    assert "did you mean" not in str(caught.value) and "fallback" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fuse", 1),
        ("fuse", "true"),
        ("fuse", None),
        ("precision", "exact"),
        ("precision", True),
        ("wrapper", "cobol"),
        ("trace", "5"),
        ("trace", 2),
        ("trace", "dir:"),
        ("trace", "file:x"),
        ("max_live_bytes", -1),
        ("variant", None),
        ("variant", {"k1": "fast"}),
        ("variant", {1: "looped"}),
        ("size_hints", 64),
        ("size_hints", (64, 0)),
        ("size_hints", (64, -1)),
        ("size_hints", (True,)),
        ("size_hints", (6.5,)),
        ("size_hints", {"s0": ()}),
        ("size_hints", {"s0": "64"}),
        ("toy.depth", [1]),
    ],
)
def test_bad_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadOptionValue) as caught:
        Options.parse(options={name: value}, environ={})
    assert repr(name) in str(caught.value) and "it takes" in caught.value.hint


@pytest.mark.parametrize("value", ["loped", {"k1": "loped"}])
def test_an_unknown_variant_is_compared_with_known_ones(value: object) -> None:
    with pytest.raises(BadOptionValue, match=r"did you mean 'looped'\?"):
        Options.parse(options={"variant": value}, environ={})


def test_mappings_and_lists_are_frozen_in_order() -> None:
    options = Options.parse(
        options={"variant": {"k2": "cut", "k1": "looped"}, "size_hints": [4096, 64, 64]}, environ={}
    )
    assert (options.variant, options.size_hints) == ((("k1", "looped"), ("k2", "cut")), (64, 4096))
    again = Options.parse(options={"size_hints": (64, 4096), "variant": {"k1": "looped", "k2": "cut"}}, environ={})
    assert hash(options) == hash(again) and options.fingerprint() == again.fingerprint()
    by_name = Options.parse(options={"size_hints": {"s1": 8, "s0": (64, 4)}}, environ={})
    assert by_name.size_hints == (("s0", (4, 64)), ("s1", (8,)))
    assert replace(by_name, fuse=False).size_hints == by_name.size_hints


def test_bad_environment_names_the_variable() -> None:
    with pytest.raises(BadOptionValue, match="MINDUCTOR_TRACE"):
        Options.parse(environ={"MINDUCTOR_TRACE": "yes"})


def test_nearer_to_the_call_wins_field_by_field() -> None:
    environ = {"MINDUCTOR_TRACE": "1", "MINDUCTOR_CACHE_DIR": "/a", "MINDUCTOR_FUSE": "0"}
    options = Options.parse("max-autotune", {"cudagraphs": False, "cache_dir": "/b"}, environ)
    assert (options.trace, options.cache_dir, options.fuse) == ("1", "/b", True)
    assert (options.autotune, options.cudagraphs) == (True, False)


def test_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", "/from/here")
    assert Options.parse().cache_dir == "/from/here"


def test_modes() -> None:
    assert Options.parse("default", environ={}) == Options()
    for values in MODES.values():
        assert all(OPTION_RULES[name].is_accepted(value) for name, value in values.items())


@pytest.mark.parametrize("mode", ["max-autotun", "", 3])
def test_unknown_mode(mode: str) -> None:
    with pytest.raises(UnknownMode, match="max-autotune-no-cudagraphs"):
        Options.parse(mode, environ={})


def test_options_of_a_backend_are_kept_in_order_and_checked_by_its_rules() -> None:
    options = Options.parse(options={"toy.b": 1, "toy.a": "x"}, environ={})
    assert options.extra == (("toy.a", "x"), ("toy.b", 1))
    rules = {"toy.a": OptionRule(str, "a"), "toy.b": OptionRule(int, "b")}
    check_extra(options, rules)
    with pytest.raises(UnknownOption, match=r"did you mean 'toy\.b'"):
        check_extra(Options.parse(options={"toy.bb": 1}, environ={}), rules)
    with pytest.raises(UnknownOption):
        check_extra(options, {})
    with pytest.raises(BadOptionValue):
        check_extra(Options.parse(options={"toy.b": True}, environ={}), rules)


@given(st.dictionaries(st.from_regex(r"toy\.[a-z]{1,3}", fullmatch=True), st.booleans() | st.integers() | st.text()))
def test_fingerprint_tells_options_apart_and_forgets_their_order(given_options: dict[str, object]) -> None:
    options = Options.parse(options=given_options, environ={})
    assert options == Options.parse(options=dict(reversed(given_options.items())), environ={})
    assert options.fingerprint() == pickle.loads(pickle.dumps(options)).fingerprint()
    for position, (name, value) in enumerate(options.extra):
        changed = (*options.extra[:position], (name, f"{value}!"), *options.extra[position + 1 :])
        assert replace(options, extra=changed).fingerprint() != options.fingerprint()
