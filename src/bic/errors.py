"""What a user can get wrong, said in one sentence with the next thing to do."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the user can mend: printed without a traceback, exit code 2."""


class LostError(Exception):
    """What a run cannot go on without was lost, by no mistake: printed without a traceback, exit code 1."""


class HeldOutWarning(UserWarning):
    """The held-out set is too small for the correction fitted on it to be trusted."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    names = list(known)
    # Not by what all of them begin with, such as "recipe."
    ends = {each.rpartition(".")[2]: each for each in names}
    near = difflib.get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.6)
    hint = f"; did you mean {ends[near[0]]!r}? Known" if near else "; known"
    return UserError(f"unknown {kind} {name!r}{hint}: {', '.join(names)}")
