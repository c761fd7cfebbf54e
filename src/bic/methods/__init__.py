"""All methods, by name. To add one: a file with its Method, and a line here."""

from bic.methods.bic import BIC, DISTILL, FC_RETRAIN, FINETUNE, JOINT
from bic.methods.eeil import EEIL
from bic.methods.icarl import ICARL
from bic.methods.lwf import LWF
from bic.methods.method import Loss, Losses, Method

METHODS: dict[str, Method] = {
    method.name: method for method in (FINETUNE, LWF, ICARL, EEIL, DISTILL, BIC, FC_RETRAIN, JOINT)
}

__all__ = ["METHODS", "Loss", "Losses", "Method"]
