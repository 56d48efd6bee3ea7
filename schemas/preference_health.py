"""How healthy preferences should be: bounds that the report and the card hold the measures against."""

from pairwright.schemas.section import Section, Share


class HealthConfig(Section):
    """Say from where on a measure of the preferences is remarked on; none of it changes a row, or holds one back.

    The bounds are ours. 1 (0 for ``min_changed``) switches one off.
    """

    max_told: Share = 0.8
    """The largest share of rows whose chosen text a classifier may find without seeing the images; chance is 0.5."""
    max_longer: Share = 0.7
    """The largest share of rows in which the text of one side, chosen or rejected, may be the longer one."""
    max_true: Share = 0.02
    """The largest share of rejected texts that may be true, of those of which it is known."""
    max_repeated: Share = 0.1
    """The largest share of rows that may have both texts of another row."""
    min_changed: Share = 0.001
    """The least share of its pixels by which the median rejected image must be seen to differ."""
