"""One colour and marker per method, in every picture."""

NAMES = ("bic", "distill", "finetune", "lwf", "icarl", "eeil", "fc-retrain", "joint")
# Okabe and Ito's colours, which the colour-blind can tell apart.
PALETTE = ["#D55E00", "#0072B2", "#56B4E9", "#999999", "#009E73", "#CC79A7", "#E69F00", "#000000"]
COLOURS, MARKERS = dict(zip(NAMES, PALETTE, strict=True)), dict(zip(NAMES, "osv^DPX*", strict=True))
SYMBOLS = ("circle", "square", "triangle-down", "triangle-up", "diamond", "cross", "x", "star")  # plotly's names
DASHES = ("solid", "longdash", "dashdot", "longdashdot")  # of the variants of a method
