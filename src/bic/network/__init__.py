"""Backbones, and the network that grows a row of its head for every class it learns."""

from bic.network.network import Network as Network
from bic.network.network import computing_in as computing_in
