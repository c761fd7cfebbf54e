"""A Progress that keeps its lines, for tests of what is said."""

from bic.progress import Progress


class Lines(Progress):
    def __init__(self) -> None:
        super().__init__("quiet")
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)
