"""Everything that a report says about one or several models, as values."""

from confrank.analysis.comparison import (
    CLAIMS,
    CLEAR,
    Comparison,
    check_resamples,
    compare,
    compare_samples,
    p_text,
    pair_sentences,
    with_intervals,
)
from confrank.analysis.groups import COVERAGE, Group, Grouping, grouping_of
from confrank.analysis.model import Analysis, Histogram, Mistake, analyse, histogram_of, with_images
from confrank.analysis.repeats import Repeats, repeats_of

__all__ = [
    "CLAIMS",
    "CLEAR",
    "COVERAGE",
    "Analysis",
    "Comparison",
    "Group",
    "Grouping",
    "Histogram",
    "Mistake",
    "Repeats",
    "analyse",
    "check_resamples",
    "compare",
    "compare_samples",
    "grouping_of",
    "histogram_of",
    "p_text",
    "pair_sentences",
    "repeats_of",
    "with_images",
    "with_intervals",
]
