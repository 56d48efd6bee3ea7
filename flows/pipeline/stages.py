"""The stages of a build, in order: each writes the table of its name, whatever the profile.

Each is declared at the end of its own file; ``flows.pipeline.pipeline`` decides which of them are
on.
"""

from pairwright.schemas.plugins import Registry
from pairwright.tasks.captioning import (
    ask_questions,
    choose_differences,
    compare_pairs,
    confirm_differences,
    control_differences,
    describe_differences,
    describe_images,
    ground_differences,
    judge_differences,
    locate_differences,
)
from pairwright.tasks.mining import (
    admit_images,
    align_pairs,
    cut_images,
    embed_images,
    find_keypoints,
    find_nouns,
    match_keypoints,
    measure_images,
    pair_neighbours,
    pair_nouns,
    search_neighbours,
    unite_pairs,
)
from pairwright.tasks.preferences import (
    build_preferences,
    measure_hardness,
    split_pairs,
    withhold_texts,
)
from pairwright.tasks.rejected import (
    choose_elements,
    choose_removals,
    choose_targets,
    detect_boxes,
    draw_texts,
    edit_texts,
    edit_with_model,
    find_mentions,
    fit_removals,
    inspect_removals,
    list_looks,
    remove_elements,
    render_expected,
    retrieve_texts,
    sample_texts,
    segment_boxes,
    split_texts,
    swap_texts,
    tag_images,
)
from pairwright.tasks.sources import read_items
from pairwright.tasks.store.stage import Stage

GROUPS = ("sources", "mining", "captioning", "rejected", "preferences")
STAGES: tuple[Stage, ...] = (
    read_items.IMAGES,  # images
    read_items.PAIRS,  # given_pairs
    read_items.COMPARISONS,  # given_comparisons
    read_items.PREFERENCES,  # given_preferences
    embed_images.STAGE,  # embeddings
    measure_images.STAGE,  # qualities
    admit_images.STAGE,  # admitted
    search_neighbours.STAGE,  # neighbours
    find_keypoints.STAGE,  # keypoints
    pair_neighbours.STAGE,  # similar_pairs
    match_keypoints.STAGE,  # matched_pairs
    find_nouns.STAGE,  # nouns
    pair_nouns.STAGE,  # noun_pairs
    align_pairs.STAGE,  # alignments
    cut_images.STAGE,  # aligned_images
    embed_images.ALIGNED,  # aligned_embeddings
    unite_pairs.STAGE,  # pairs
    describe_images.STAGE,  # captions
    describe_differences.STAGE,  # described
    control_differences.STAGE,  # controlled
    ground_differences.STAGE,  # grounded
    locate_differences.STAGE,  # regions
    confirm_differences.STAGE,  # confirmed
    judge_differences.STAGE,  # judged
    choose_differences.STAGE,  # differences
    compare_pairs.STAGE,  # comparisons
    ask_questions.STAGE,  # questions
    split_pairs.STAGE,  # splits; before the texts that are retrieved: from the pair's own split
    swap_texts.STAGE,  # swapped
    edit_texts.STAGE,  # edited
    retrieve_texts.STAGE,  # retrieved
    draw_texts.STAGE,  # random
    # counterfactual; before the samples: the model that reads text may still be up
    edit_with_model.STAGE,
    sample_texts.STAGE,  # sampled
    sample_texts.BLIND,  # blind
    split_texts.STAGE,  # statements; by the model that has just sampled
    judge_differences.REJECTED,  # judged_rejected
    # mentions; from here on, servers that this build started leave the GPU to these models
    find_mentions.STAGE,
    choose_targets.STAGE,  # targets
    tag_images.STAGE,  # tags
    detect_boxes.STAGE,  # boxes
    segment_boxes.STAGE,  # masks
    choose_elements.STAGE,  # elements
    remove_elements.STAGE,  # removals
    inspect_removals.STAGE,  # inspected
    fit_removals.STAGE,  # fitted
    choose_removals.STAGE,  # rejections
    list_looks.STAGE,  # looks
    render_expected.STAGE,  # expected
    withhold_texts.STAGE,  # withheld
    build_preferences.STAGE,  # preferences
    measure_hardness.STAGE,  # hardness
)
TABLES = tuple(stage.name for stage in STAGES)
BY_NAME = Registry("stages", Stage, STAGES)
"""All stages by name, including those of plugins, which run if a profile names them."""
RESULTS = frozenset(
    {"images", "pairs", "differences", "comparisons", "questions", "preferences", "hardness"}
)
"""Result tables: a stage that leads to none of them is off."""
