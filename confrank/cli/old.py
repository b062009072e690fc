"""Commands that still use jsonargparse."""

from confrank.cli.active import ACTIVE
from confrank.cli.command import Command
from confrank.cli.data import DATA
from confrank.cli.ood import OOD
from confrank.cli.options import DOORS
from confrank.cli.predict import PREDICT
from confrank.cli.report import REPORT
from confrank.cli.study import STUDY, TABLE
from confrank.cli.train import TRAIN

OLD: dict[str, Command] = {
    "train": TRAIN, "predict": PREDICT, "data": DATA, "ood": OOD, "active": ACTIVE, "study": STUDY, "table": TABLE,
    "report": REPORT,
}  # fmt: skip
DOORS["train"] += ["train", "predict", "data"]
DOORS["research"] += ["ood", "active", "study", "table", "report"]
