"""Reads the documents: which there are, and the blocks of code in them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
TUTORIAL = ROOT / "docs" / "guide" / "tutorial.md"  # has data and a test of its own
RUN = [ROOT / "README.md", *(page for page in GUIDE if page != TUTORIAL)]
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

LANGUAGES = {"console", "python", "toml", "text"}
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>[^\n]*)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROMPT = "$ "


@dataclass
class Command:
    text: str
    output: list[str] = field(default_factory=list)

    def check(self, printed: str) -> None:
        """The command prints every line that the document shows, up to the first figure in it."""
        for line in self.output:
            start = words(re.split(r"-?\d|…", line)[0])
            assert start in words(printed), f"{self.text} does not print {line!r}, but:\n{printed}"


def words(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class Block:
    """A fenced block. `not_run` is the reason that the document gives for not running it."""

    language: str
    content: str
    not_run: str | None

    @property
    def file_name(self) -> str | None:
        """The name in the first line, as in `# mine.toml`, if the block is a file."""
        match = re.match(r"# (\S+\.\w+)\n", self.content)
        return None if match is None else match[1]

    def commands(self) -> list[Command]:
        """The commands of a console block, each with the output that the document shows."""
        commands: list[Command] = []
        for line in self.content.splitlines():
            if line.startswith(PROMPT):
                commands.append(Command(line.removeprefix(PROMPT)))
            elif commands[-1].text.endswith("\\"):
                commands[-1].text = commands[-1].text.removesuffix("\\") + line.strip()
            else:
                commands[-1].output.append(line)
        return commands


def blocks(document: Path) -> list[Block]:
    found = []
    for match in BLOCK.finditer(document.read_text()):
        assert match["language"] in LANGUAGES, f"{document.name}: a block of {match['language']!r}"
        found.append(Block(match["language"], match["content"], match["reason"]))
    return found


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()
