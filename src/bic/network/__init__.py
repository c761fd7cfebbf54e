"""Backbones, and the network that grows a row of its head for every class it learns."""

from bic.network.backbones import build_backbone
from bic.network.network import Network

__all__ = ["Network", "build_backbone"]
