"""Words and sentences of descriptions: content, denials, and reasons to refuse a text (ours).

By words alone, without a parser; English only.
"""

import re

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
DENYING = "no not none never nothing neither nor without lacks lack lacking missing absent"
PICTURE = "image picture photo photograph photography shot view scene"
SMALL = (
    "a an the this that these those it its itself they their them there here which who whose "
    "what of and or as in on "
    "at to with by for from into but while some any all also same is are was were be been being "
    "am has have had having "
    "do does did doing s"
)
NEGATIONS = frozenset(DENYING.split())
EMPTY = frozenset(f"{PICTURE} {SMALL}".split())
"""Words without content: articles, pronouns, forms of "be" and "have", short prepositions, words
for a picture."""


def content_words(text: str) -> list[str]:
    """Return the content words of a text in order, in lower case and the singular.

    A negation is "no".
    """
    words: list[str] = []
    for match in WORD.findall(text):
        word = match.lower().replace("’", "'")
        singular = word.removesuffix("'s")
        if len(singular) > 3 and not singular.endswith(("ss", "us", "is")):
            singular = singular.removesuffix("s")
        if word in NEGATIONS or word.endswith("n't"):
            singular = "no"
        words.append(singular)
    return [word for word in words if word not in EMPTY]


SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?= [\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])")
OPENER = re.compile(
    r" [\"'“‘(\[]*(?:"
    r"The|An?|It|Its|In|On|At|To|There|This|That|These|Those|He|She|They|His|Her|Their|Some|Several"
    r"|Many|Both|One|Two|Three|Behind|Below|Above|Next|Near|Another|Overall|Also|Beside|Beyond|Under"
    r"|With|And|But)\b(?!\.)"
)
"""Common first words of a sentence; after an abbreviation that may end one, no others count."""
TITLES = "mr mrs ms dr prof gen col capt lt sgt rev fig figs vs approx cf al e.g i.e ca"
SHORTENED = "st mt ave blvd rd sq jr sr co inc ltd corp etc dept est min max p.m a.m"
NEVER_LAST = frozenset(TITLES.split())
"""Abbreviations that never end a sentence."""
SOMETIMES_LAST = frozenset(SHORTENED.split())
"""Abbreviations that may end a sentence."""
LETTERS = re.compile(r"[A-Z]|[^\W\d_](?:\.[^\W\d_])+")
"""Initial ("J."), or letters with full stops ("U.S.")."""
ENUMERATED = re.compile(r"\(?(?:\d{1,2}|[a-z])[.)]+", re.IGNORECASE)


def split_by_rules(text: str) -> tuple[str, ...]:
    """Return the sentences; joined by spaces they are the text, put on one line."""
    text = " ".join(text.split())
    if not text:
        return ()
    sentences: list[str] = []
    start = 0
    for match in SENTENCE_END.finditer(text):
        if _is_end(text[start : match.end()], text[match.end() :]):
            sentences.append(text[start : match.end()])
            start = match.end() + 1
    return (*sentences, text[start:])


def _is_end(before: str, after: str) -> bool:
    """Return whether a sentence ends here.

    It does not after an abbreviation, an initial, or the number of an item.
    """
    if ENUMERATED.fullmatch(before):
        return False
    last = before.rpartition(" ")[2].lstrip("\"'“‘([")
    word = last.removesuffix(".")
    if word == last or word.endswith((".", "!", "?")):
        return True  # another end than one full stop, or a quotation's
    lower = word.lower()
    if lower in NEVER_LAST:
        return False
    if lower in ("no", "nos") and after[1:2].isdigit():
        return False
    if lower in SOMETIMES_LAST or LETTERS.fullmatch(word):
        return bool(OPENER.match(after))
    return True


def ends_short(text: str) -> bool:
    """Return whether a text ends in an abbreviation that never ends a sentence: it was cut off."""
    last = text.rpartition(" ")[2].lower()
    return last.lstrip("\"'“‘([").removesuffix(".") in NEVER_LAST


LETTERS_ONLY = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MAX_REPEATED_WORDS = 60
"""Maximum words of a repeated piece."""
MIN_REPETITION_WORDS = 24
"""Minimum words of all repetitions: "a dog, a dog, a dog" is no loop yet."""
MIN_REPETITIONS = 4
RUN = re.compile(r"([^\w]{1,4}?)\1{60,}")
"""Runs of punctuation: a run of dashes is a rule of Markdown, an endless one is not."""
QUOTED = re.compile(
    r"\"[^\"\n]{0,200}\""
    r"|[“„«][^”“»\n]{0,200}[”“»]"
    r"|(?<!\w)['‘][^'’\n]{0,200}['’](?!\w)"
)
"""Quoted writing within a picture, which may say anything."""
DECLINED = re.compile(
    r"\bas an? (?:\w+ ){0,3}(?:ai|language model|assistant)\b"
    r"|\bi(?:['’]m| am) (?:\w+ ){0,3}language model\b"
    r"|\bi(?:['’]m| am) (?:(?:very|so|truly) )?(?:sorry|afraid|unable|not able)\b"
    r"|\bi(?: must)? apologi[sz]e\b"
    r"|\bi (?:can(?:not|['’]t| not)|could(?: not|n['’]t)"
    r"|do(?: not|n['’]t) (?:see|have (?:access|the ability)))\b"
    r"|\bno images? (?:was|were|are|have been|has been) "
    r"(?:provided|attached|given|shared|uploaded)\b"
    r"|\bwithout (?:seeing|access to|being able to see) (?:the|both|any|either)\b"
    r"|\bplease (?:provide|upload|share|attach)\b"
    r"|\A\W*(?:the |both |either )?(?:images?|pictures?|photos?) (?:is|are|was|were)"
    r"(?: not|n['’]t) (?:available|visible|provided|attached|accessible)\b"
    r"|\A\W*(?:n/a|not available|no (?:caption|description|answer|response))\W*\Z"
    r"|\A\W*(?:lo siento|desculpe|je suis désolé|es tut mir leid|mi dispiace)\b",
    re.IGNORECASE,
)
TEXTS = r"(?:captions?|(?:image |given |provided |textual ){1,3}descriptions?)"
SAYING = (
    r"(?:mention|describe|state|say|specif|indicate|note|include|refer|suggest|read|tell|give"
    r"|provide|(?:is|are|was|were) (?:given|provided))"
)
CAPTIONS = re.compile(
    rf"\b(?:according to|based on|judging by|going by|as (?:\w+ )?(?:in|by)) (?:\w+ ){{0,3}}"
    rf"(?:{TEXTS}|descriptions?|context|annotations?)\b"
    rf"|\b(?:from|in|by) (?:the|both|each|its|their|either|these|this) (?:\w+ )?{TEXTS}\b"
    rf"|\b{TEXTS} (?:of|for|to) (?:the )?(?:both |two |first |second |other )?images?\b"
    r"|\b(?:first|second|other|both|two|image|image [12]['’]s) captions?\b"
    r"|\bcaptions? (?:[12]|one|two)\b"
    rf"|\b(?:the|both|neither|either|each) {TEXTS}(?: \w+){{0,2}}? "
    rf"(?:(?:do|does|did)(?: not|n['’]t) )?{SAYING}"
    r"|\bdescriptions? (?:of|for) (?:the )?"
    r"(?:(?:first|second|other) image|image (?:[12]|one|two))\b"
    r"|\b(?:not|n['’]t|nor|never) (?:\w+ )?(?:mention|specif|stated?\b)",
    re.IGNORECASE,
)


def declines(text: str) -> bool:
    """Return whether a model declines: it cannot see the images, is a model, or apologises."""
    return DECLINED.search(QUOTED.sub(" ", text)) is not None


def names_captions(text: str) -> bool:
    """Return whether a text mentions captions, which its reader does not have.

    A caption within a picture is allowed ("a newspaper with a caption below the photo").
    """
    return CAPTIONS.search(QUOTED.sub(" ", text)) is not None


SMALL_ENGLISH = "the and with are from which to of this that there"
ENGLISH = frozenset(SMALL_ENGLISH.split())
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Characters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which write no spaces."""
MIN_LANGUAGE_WORDS = 20
"""Minimum words of a text in Latin letters whose language is judged."""


def in_another_language(text: str) -> bool:
    """Return whether a text is not in English: another script, or none of English's small words."""
    letters = [character for character in text if character.isalpha()]
    latin = sum(character < "\u0250" for character in letters)
    if letters and latin < len(letters) / 2:
        return True
    text_words = [word.lower() for word in WORD.findall(text)]
    return len(text_words) >= MIN_LANGUAGE_WORDS and ENGLISH.isdisjoint(text_words)


def count_words(text: str) -> int:
    """Return the number of words; of scripts without spaces, two characters count as one."""
    unspaced = len(UNSPACED.findall(text))
    return len(UNSPACED.sub(" ", text).split()) + unspaced // 2


def repeats_itself(text: str) -> bool:
    """Return whether a piece of up to 60 words occurs at least four times in a row.

    Numbers between the pieces are ignored.
    """
    if RUN.search(text):
        return True
    words = [word.lower() for word in LETTERS_ONLY.findall(text)]
    for size in range(1, MAX_REPEATED_WORDS + 1):
        min_words = max(MIN_REPETITIONS * size, MIN_REPETITION_WORDS)
        run = 0  # words that equal the one ``size`` words earlier
        for word, earlier in zip(words[size:], words, strict=False):
            run = run + 1 if word == earlier else 0
            if run and run + size >= min_words:
                return True
    return False


CLAUSE = re.compile(
    r"[,;:.]\s+|[,;:.]$"
    r"|\s+(?=(?:but|while|whereas|although|though|and (?:with|has|shows))\b)",
    re.IGNORECASE,
)
REST_DENIED = re.compile(
    r"\b(?:no|without|lack(?:s|ing)?(?: of)?|devoid of|free of|instead of|rather than"
    r"|except(?: for)?|none|nothing|neither|nobody|nowhere|all but no)\b",
    re.IGNORECASE,
)
ALL_DENIED = re.compile(
    r"\b(?:not|never|cannot|\w+n['’]t|no longer|missing|absent|gone|removed|disappear\w*|vanish\w*"
    r"|absence of)\b",
    re.IGNORECASE,
)
JOINING = re.compile(
    r"^(?:but|and|while|whereas|although|though)(?:\s+|$)"
    r"|\s+(?:and|or|but|with|has|shows|that|which|who|in all)$",
    re.IGNORECASE,
)


def affirmed(half: str) -> str:
    """Return the half without its denials; empty where no content is left.

    Encoders of images and texts hardly know "no": they find "no dog" most like a dog. From "no",
    "without" and similar words on, the rest of a clause is cut; a clause whose verb is denied, or
    that says that something is gone, is cut whole.
    """
    if not content_words(half):
        return ""
    if not denies(half):
        return half
    clauses: list[str] = []
    for clause in CLAUSE.split(half):
        if ALL_DENIED.search(clause):
            continue
        rest = _strip_joining(REST_DENIED.split(clause, maxsplit=1)[0].strip())
        if content_words(rest):
            clauses.append(rest)
    return ", ".join(clauses)


def _strip_joining(clause: str) -> str:
    """Return a clause without conjunctions at its start and end."""
    shorter = JOINING.sub("", clause)
    while shorter != clause:
        clause = shorter
        shorter = JOINING.sub("", clause)
    return clause


def denies(half: str) -> bool:
    """Return whether a half denies anything."""
    return bool(REST_DENIED.search(half) or ALL_DENIED.search(half))


ALIKE = frozenset(("same", "identical", "unchanged", "unaltered", "unmodified"))
VAGUE = re.compile(r"\b(?<!exact )(?<!exactly the )(?<!very )same (?!image|picture|photo)")
""""Same" before a noun other than "image": the same scene may hold other things."""
CHANGES = (
    "change changes changed changing difference differences different differ differs alteration "
    "alterations altered "
    "modification modifications modified variation variations added removed moved replaced "
    "missing taken"
)
DENIALS = "no not nothing none never without neither nor zero isn't aren't doesn't hasn't haven't"
AROUND = (
    "a an the this that it its there which as to with from in of on at by between and or for all "
    "both is are was were "
    "be been being has have had having does do did remains remain remained remaining stays "
    "stayed kept first second "
    "one two image images picture pictures photo photos photograph photographs scene scenes view "
    "frame setting "
    "composition content contents version copy everything object objects element elements detail "
    "details anything "
    "thing things whatsoever again still just exact exactly very completely entirely totally "
    "fully perfectly visually "
    "virtually absolutely visible noticeable apparent discernible detectable observable obvious "
    "significant notable "
    "real actual any compared when before previous original earlier way away respect sign signs "
    "kind sort"
)
CHANGE = frozenset(CHANGES.split())
DENIAL = frozenset(DENIALS.split())
SAMENESS = ALIKE | CHANGE | DENIAL | frozenset(AROUND.split())


def says_no_change(half: str) -> bool:
    """Return whether the half, without its verb, only states that both images show the same.

    Every word must be about sameness: "the same scene with no visible change" is no change; "the
    same scene with a car" and "no change in the colour of the car" are not, since something else
    may have changed.
    """
    half = half.lower().replace("’", "'")
    half_words = WORD.findall(half)
    if not SAMENESS.issuperset(half_words):
        return False
    alike = ALIKE
    if VAGUE.search(half):
        alike = ALIKE - {"same"}
    denials = _positions(half_words, DENIAL)
    changes = _positions(half_words, CHANGE)
    same = _positions(half_words, alike)
    first_denial = denials[0] if denials else len(half_words)
    if any(position < first_denial for position in changes):
        return False
    if any(first_denial < position < first_denial + 4 for position in same):
        return False
    return bool(changes or same)


def _positions(half_words: list[str], vocabulary: frozenset[str]) -> list[int]:
    return [position for position, word in enumerate(half_words) if word in vocabulary]
