"""Devices: on which of them each test runs, and why it does not run on others.

The files in reading order:

    device_choice.py      Device, and the choice of devices from the environment, the options and a marker
    capabilities.py       what the machine can do: the names that the marker `needs` takes
    run_devices.py        the devices of one pytest process, decided once
    tests_per_device.py   one test, or one unittest class, for each device
    item_device.py        the device of a collected test, and the test's name without it
    known_failures.py     the file of failures that are expected on some device or compiler

Data: the user's settings (DeviceSettings), the ids that the compiler takes, and the machine's answers go in. A
DeviceChoice comes out: the ids to run on, and the reason why each other candidate does not run.
Laws: a choice that leaves no device, an unknown name and an absent required device end the run with a usage error.
With xdist the controller decides, and the workers follow. No GPU is touched before a test needs one.
"""
