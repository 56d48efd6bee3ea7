"""Words that the makers of rejected texts know: what scenes are described with, what excludes what, what may be both.

Reads and writes nothing. All of it is ours, and small: a word that is in no list is a word like any other.
"""

from pairwright.schemas.differences import NEGATIONS
from pairwright.schemas.scene import PLURALS

SCENE_WORDS: dict[str, tuple[str, ...]] = {
    "colour": ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink", "white", "black"),
    "material": ("metal", "rubber", "wooden", "ceramic"),
    "size": ("small", "medium", "large"),
    "shape": tuple(PLURALS),
    "column": ("left", "centre", "right"),
    "depth": ("front", "middle", "back"),
    "facing": ("left", "right", "front", "back"),
    "text": ("STOP", "OPEN", "EXIT", "SALE", "CAFE", "TAXI", "ZOO", "BUS", "PARK", "SHOP"),
}
"""The words that rendered scenes use for each attribute, so that no word gives an edit away."""

COLOURS = (
    "red orange yellow green turquoise blue purple pink white black gray brown beige tan cream gold silver maroon navy "
    "teal cyan violet crimson"
)
NUMBERS = "two three four five six seven eight nine ten eleven twelve several many few"
DENIALS = f"{NEGATIONS} lack lacks lacking lacked missing absent gone no-one nobody"
FORMS: dict[str, str] = {
    "no": DENIALS,
    "one": "a an 1 single",
    **{word: str(count) for count, word in enumerate(NUMBERS.split()[:11], 2)},
    "gray": "grey",
    "color": "colour coloured colored",
    "person": "people persons",
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "mouse": "mice",
    "goose": "geese",
    "leaf": "leaves",
    "shelf": "shelves",
    "knife": "knives",
    "stand": "standing stood",
    "sit": "sat",
    "hold": "held",
    "run": "ran",
    "lie": "lying laying laid",
    "wear": "wore worn",
}
"""Words whose forms no rule finds; all that deny are one."""
OPPOSITES = (
    "left right",
    "up down",
    "top bottom",
    "front back behind",
    "above below under beneath on over",
    "inside outside in",
    "near far",
    "open closed shut",
    "empty full",
    "day night",
    "light dark bright",
    "large small",
    "tall short",
    "long short",
    "old new young",
    "sit stand lie walk run",
    "raise lower",
    "more fewer less",
    "more fewer",
    "wet dry",
    "front rear",
)
"""Words of a line exclude one another; a text in which one of them comes or goes says something else."""
RELATIONS = "left right behind front above below under beneath over inside outside near beside between against"
WEAK = "on in at with of by to from into onto along"
"""Prepositions that texts exchange without meaning another place: they count where a ``RELATIONS`` word takes over."""
ALIKE = (
    "gray silver",
    "purple violet",
    "turquoise teal cyan blue",
    "turquoise green",
    "red crimson maroon",
    "blue navy",
    "beige tan cream",
    "brown tan",
    "white cream",
    "yellow gold",
    "orange red",
    "large big huge tall",
    "small little tiny short",
    "photo photograph picture image scene view shot",
    "man guy gentleman male",
    "woman lady female",
    "child kid boy toddler",
    "child kid girl toddler",
    "jacket coat",
    "car automobile",
    "bike bicycle",
    "motorbike motorcycle",
    "couch sofa",
    "road street",
    "sidewalk pavement",
    "house building home",
    "wood wooden",
    "metal metallic steel iron",
    "mug cup",
    "middle centre center",
    "several many few",
    "close near next beside",
    "under below beneath",
    "over above",
    "closed shut",
    "stone rock",
    "ocean sea water",
    "lake water",
    "river water",
    "grass lawn field",
    "bright light sunny",
)
"""Words of a line may be said of one and the same thing."""
KINDS = {
    "person": "man woman boy girl child kid adult lady guy player pedestrian worker rider toddler gentleman",
    "animal": "dog cat horse cow sheep bird bear elephant zebra giraffe duck goat",
    "bird": "duck goose pigeon parrot chicken",
    "dog": "puppy poodle",
    "cat": "kitten",
    "vehicle": "car truck bus van motorcycle bicycle taxi lorry train",
    "car": "taxi van sedan",
    "food": "pizza cake sandwich bread apple banana fruit vegetable",
    "fruit": "apple banana orange pear",
    "plant": "tree flower bush grass",
    "furniture": "chair table sofa couch bed desk bench",
    "clothing": "shirt jacket coat dress hat trousers",
}
"""What is said of a thing beside the general word: a poodle is a dog, and a dog an animal."""
GENERAL = "object thing item something"
"""Words that may be said of whatever there is."""
