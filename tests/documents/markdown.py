"""Reads the documents: which there are, and the blocks of code in them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
RUN = [ROOT / "README.md", *GUIDE]
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
