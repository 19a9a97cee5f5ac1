"""Training from a plan: `train`, and what it gives back.

before    what is looked at before the first grant
loop      the rounds, with callbacks around them
figures   how good the finished model is, at each client and on held-out records
ending    what a run leaves behind
result    what is given back
"""

from sordino.callbacks import Progress
from sordino.training.before import build_rule
from sordino.training.loop import train
from sordino.training.result import Result

__all__ = ["Progress", "Result", "build_rule", "train"]
