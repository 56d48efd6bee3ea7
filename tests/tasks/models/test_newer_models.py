"""OWLv2, MM Grounding DINO, DINOv3 and SigLIP 2 by the libraries' own loaders and pipelines."""

import shutil

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForZeroShotObjectDetection,
    AutoProcessor,
    BertConfig,
    BertModel,
    DINOv3ViTImageProcessor,
)

from pairwright.schemas.config import ClipConfig, DetectionConfig
from pairwright.schemas.encoder_config import EncoderConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Tag
from pairwright.tasks.models import grounding_dino, open_clip_embedder, owlv2, text_scorer
from pairwright.tasks.models.embedders import make_clip, make_encoder
from pairwright.tasks.models.image_encoder import pin_encoder
from pairwright.tasks.models.open_clip_embedder import create_tokenizer, pin_clip
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.text_scorer import OpenClipTexts
from pairwright.tasks.perception.detectors import make_detector, pin_detector
from tests.fixtures.checkpoints import BERT_SIZES, write_grounding_folder, write_hub_cache
from tests.fixtures.newer_checkpoints import (
    write_dinov3_folder,
    write_owlv2_folder,
    write_siglip2_folder,
)
from tests.tasks.models.samples import assert_vectors, cosines, embed, moved, photographs

IMAGES = list(photographs().values())
CHINA = photographs()["china"]
NAMES = ("dog", "red ball", "person")


@pytest.fixture(autouse=True)
def forget():
    yield
    for load in (grounding_dino._load, owlv2._load, text_scorer._load):
        load.cache_clear()


def tags_of(*names):
    return tuple(Tag(name=name, score=1.0, tagger="nouns") for name in names)


def detector_of(name, folder, **settings):
    config = DetectionConfig(detector=name, model=str(folder), max_iou=1.0, **settings)
    return make_detector(pin_detector(config))


def detect(detector, image, names):
    (boxes,) = detector.detect([detector.prepare(DecodedImage(image))], [tags_of(*names)])
    return boxes


def test_owlv2_boxes_are_those_of_transformers(tmp_path):
    folder = write_owlv2_folder(tmp_path)
    detector = detector_of("owlv2", folder, box_threshold=0.5)
    boxes = detect(detector, CHINA, NAMES)
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    texts = [[f"a photo of a {name}" for name in NAMES]]
    inputs = processor(text=texts, images=Image.fromarray(CHINA), return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs)
    (result,) = processor.post_process_grounded_object_detection(
        output, threshold=0.5, target_sizes=[CHINA.shape[:2]]
    )
    height, width = CHINA.shape[:2]
    limits = torch.tensor([width, height, width, height])
    corners = result["boxes"].clamp(min=torch.zeros(4), max=limits)
    whole = (corners[:, 2:] > corners[:, :2]).all(dim=1)
    expected = {
        (label, round(score, 3))
        for label, score in zip(
            result["labels"][whole].tolist(), result["scores"][whole].tolist(), strict=True
        )
    }
    assert {(box.tag, round(box.score, 3)) for box in boxes} == expected
    assert len({box.tag for box in boxes}) > 1


def test_owlv2_answers_for_an_image_do_not_depend_on_others(tmp_path):
    detector = detector_of("owlv2", write_owlv2_folder(tmp_path), box_threshold=0.5, batch_size=2)
    alone = detect(detector, CHINA, NAMES[:1])
    prepared = [detector.prepare(DecodedImage(image)) for image in (CHINA, CHINA[::-1], CHINA)]
    together = detector.detect(prepared, [tags_of(*NAMES[:1]), tags_of(*NAMES), ()])
    assert [box.score for box in together[0]] == pytest.approx(
        [box.score for box in alone], abs=1e-3
    )
    assert together[2] == ()


def test_mm_grounding_dino_finds_each_tag_by_its_own_words(tmp_path):
    folder = write_grounding_folder(tmp_path, is_mm=True)
    detector = detector_of("mm-grounding-dino", folder, box_threshold=0, text_threshold=0)
    assert detector.version.startswith("MM Grounding DINO xxh3:")
    boxes = detect(detector, CHINA, ("cat", "Red ball"))
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    assert type(model).__name__ == "MMGroundingDinoForObjectDetection"
    inputs = processor(images=Image.fromarray(CHINA), text="cat. red ball.", return_tensors="pt")
    with torch.inference_mode():
        logits = model(**inputs).logits[0].sigmoid()
    # [CLS] cat . red ball . [SEP]
    best = {0: logits[:, 1].max().item(), 1: logits[:, 3:5].amax().item()}
    for tag, score in best.items():
        found = max(box.score for box in boxes if box.tag == tag)
        assert found == pytest.approx(score, abs=2e-4)


def test_a_model_of_another_family_is_named(tmp_path):
    folder = write_grounding_folder(tmp_path)
    with pytest.raises(ModelError, match="describes a grounding-dino, not a mm-grounding-dino"):
        detector_of("mm-grounding-dino", folder)
    with pytest.raises(ModelError, match="describes a grounding-dino, not a owlv2 or a owlvit"):
        detector_of("owlv2", folder)


def test_dinov3_vectors_are_those_of_transformers(tmp_path):
    folder = write_dinov3_folder(tmp_path)
    embedder = make_encoder(pin_encoder(EncoderConfig(model=str(folder)), download=False))
    model = AutoModel.from_pretrained(folder).eval()
    processor = DINOv3ViTImageProcessor.from_pretrained(folder)
    with torch.inference_mode():
        inputs = [processor(Image.fromarray(image), return_tensors="pt") for image in IMAGES]
        states = [model(**fields).pooler_output.numpy() for fields in inputs]
    vectors = embed(embedder, IMAGES)
    assert_vectors(vectors, np.concatenate(states))
    assert np.median(cosines(vectors, embed(embedder, moved(IMAGES)))) < 0.999


def test_a_model_that_sees_no_images_is_refused(tmp_path):
    folder = write_dinov3_folder(tmp_path)
    processor = (folder / "preprocessor_config.json").read_text()
    shutil.rmtree(folder)
    BertModel(BertConfig(**BERT_SIZES)).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(processor)
    embedder = make_encoder(pin_encoder(EncoderConfig(model=str(folder)), download=False))
    with pytest.raises(ModelError, match="no image encoder with a pooled output"):
        _ = embedder.prepare


def test_siglip2_embeds_images_and_texts_as_open_clip_does(tmp_path):
    folder = write_siglip2_folder(tmp_path)
    config = pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    tokenize = open_clip.get_tokenizer(f"local-dir:{folder}")
    texts = ["A photo of a dog!", "red ball"]
    with torch.inference_mode():
        pixels = torch.stack([preprocess(Image.fromarray(image)) for image in IMAGES[:4]])
        expected = model.eval().encode_image(pixels).numpy()
        words = model.encode_text(tokenize(texts), normalize=True).numpy()
    assert_vectors(embed(make_clip(config), IMAGES[:4]), expected)
    scorer = OpenClipTexts(config=config)
    np.testing.assert_allclose(scorer.embed(texts), words, atol=1e-5)
    assert scorer.split_text("a photo of a dog") == ("a photo of a dog",)


def test_the_tokenizer_is_looked_for_with_the_weights(tmp_path, hub_cache):
    """Of a model in the Hub's cache, before a build; not only when texts are embedded."""
    folder = write_siglip2_folder(tmp_path / "siglip2")
    tokenizer = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").unlink()
    write_hub_cache(hub_cache, "timm/ViT-B-16-SigLIP2", folder)
    config = ClipConfig(model="ViT-B-16-SigLIP2", pretrained="webli")
    with pytest.raises(ModelError, match=r"timm/ViT-B-16-SigLIP2 .*tokenizer\.json"):
        pin_clip(config, download=False)
    (snapshot,) = (hub_cache / "models--timm--ViT-B-16-SigLIP2/snapshots").iterdir()
    (snapshot / "tokenizer.json").write_bytes(tokenizer)
    pinned = pin_clip(config, download=False)
    assert pinned.revision == snapshot.name
    tokenize = create_tokenizer(pinned)
    assert tokenize(["A dog!"]).shape == (1, 64), "SigLIP 2's length"
    assert open_clip_embedder._tokenizer_files(ClipConfig(), "embedding.clip") is None


def test_a_folder_without_its_tokenizer_is_refused_before_a_build(tmp_path):
    folder = write_siglip2_folder(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"embedding\.clip, tokenizer"):
        pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
