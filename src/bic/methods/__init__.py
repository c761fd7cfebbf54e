"""All methods, by name. To add one: its Method in one of these files, and its name here."""

from bic.methods.bic import BIC, BIC_TRAINED, DISTILL, FC_RETRAIN, FINETUNE, JOINT, classification_only
from bic.methods.method import Loss, Losses, Method
from bic.methods.rivals import EEIL, ICARL, LWF

METHODS = {method.name: method for method in (FINETUNE, LWF, ICARL, EEIL, DISTILL, BIC, FC_RETRAIN, JOINT)}
VARIANTS = {BIC_TRAINED.name: BIC_TRAINED}  # made for one of the paper's experiments

__all__ = ["METHODS", "VARIANTS", "Loss", "Losses", "Method", "classification_only"]
