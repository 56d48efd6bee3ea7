"""How healthy preferences should be: bounds that the report and the card hold the measures against."""

from pairwright.schemas.section import Section, Share


class HealthConfig(Section):
    """Say from where on a measure of the preferences is remarked on; none of it changes a row, or holds one back.

    The bounds are ours. 1 (0 for ``min_changed_share``) switches one off.
    """

    max_text_only_accuracy: Share = 0.8
    """Maximum share of rows whose chosen text a classifier may find without seeing the images; chance is 0.5."""
    max_longer_share: Share = 0.7
    """Maximum share of rows in which the text of one side, chosen or rejected, may be the longer one."""
    max_true_share: Share = 0.02
    """Maximum share of rejected texts that may be true, of those of which it is known."""
    max_repeated_share: Share = 0.1
    """Maximum share of rows that may have both texts of another row."""
    min_changed_share: Share = 0.001
    """Minimum share of its pixels in which the median rejected image differs visibly."""
