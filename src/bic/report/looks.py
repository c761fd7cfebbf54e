"""How a method is drawn, and what tables must say about it. The facts come from the method."""

from dataclasses import dataclass

from bic.learn.methods import ALL, METHODS


@dataclass(frozen=True)
class Look:
    """The look of one method. The defaults are for a method that this version does not know."""

    colour: str = "#666666"
    marker: str = "o"  # as matplotlib names it
    symbol: str = "circle"  # as plotly names it
    is_upper_bound: bool = False
    gives_probabilities: bool = True


def look_of(method_name: str) -> Look:
    """The look of the method with this name, or the default for an unknown name."""
    method = METHODS.get(method_name) or ALL.get(method_name)
    if method is None:
        return Look()
    return Look(
        colour=method.colour,
        marker=method.marker,
        symbol=method.symbol,
        is_upper_bound=method.is_upper_bound,
        gives_probabilities=method.gives_probabilities,
    )


# For several variants of one method: the colours of Okabe and Ito, which are safe for colour-blind
# readers.
VARIANT_LOOKS = (
    Look("#D55E00", symbol="circle"),
    Look("#0072B2", symbol="square"),
    Look("#56B4E9", symbol="triangle-down"),
    Look("#999999", symbol="triangle-up"),
    Look("#009E73", symbol="diamond"),
    Look("#CC79A7", symbol="cross"),
    Look("#E69F00", symbol="x"),
    Look("#000000", symbol="star"),
)

# For curves of the same colour, as plotly names them.
DASHES = ("solid", "longdash", "dashdot", "longdashdot")
