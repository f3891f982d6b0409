"""What the emulator raises."""


class EmulationBuildError(Exception):
    """The sources do not compile for the emulator; the message is the compiler's."""


class EmulationError(Exception):
    """A kernel did what it must not do, or a launcher returned an error."""
