"""Everything that a report says about one or several models, as values."""

from confrank.analysis.comparison import Comparison, check_resamples, compare, compare_samples, with_intervals
from confrank.analysis.groups import COVERAGE, Group, Grouping, grouping_of
from confrank.analysis.model import Analysis, Histogram, Mistake, analyse, histogram_of, with_images
from confrank.analysis.repeats import Repeats, repeats_of

__all__ = [
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
    "repeats_of",
    "with_images",
    "with_intervals",
]
