"""Words of a query or a registry: cutting, stems, and which of them say anything."""

import re
from unicodedata import normalize

__all__ = ["NEUTRAL", "WEAK", "all_words", "deletions", "stem"]

_WORD = re.compile(r"[^\W_][\w]*")
# Names that punctuation is part of; without this "C++" would be "C".
_SPELLED = ((re.compile(r"\bc\+\+\d*"), " cpp "), (re.compile(r"\b([cf])#"), r" \1sharp "))
_QUOTES = re.compile(r"['’`]")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They say that somebody asks, not about what: left out of a score altogether.
NEUTRAL = _set(
    """
    a about absolute actually after again all also always am an and any are as at be because
    been before begin beginner beginners best better between both but by can cannot could course
    courses did difference do does doing done dont easily easy ebook etc ever every everything
    example examples explain explained explaining explanation for from get gets getting give
    good got great guide had has have hello help her his how i if im in instead into intro
    introduction introductory is it its just kind know learn learning lesson lessons like ll
    long many material materials may me mean meaning means might more most much must my need
    needs new newbie newbies newcomer newcomers no not now of off ok on one online only or other
    our out over own people person picking please proper properly quick quickly rather re read
    reading really recommend recommended reference resource resources s safely same scratch see
    several shall should show simple simply so some somebody someone something stand start
    started starting still study such sure t take taught teach teaching tell than thank thanks
    that the their them then there these they thing things this those through tips to together
    too topic try tutorial tutorials understand understanding until up us use used useful user
    using ve versus very vs want wants was way ways we well were what whats when where which
    while who whom whose why will with without word words work working works would yes you your
    zero
    """
)

# They go with every subject: they count, but little.
WEAK = _set(
    """
    add advanced allowed analysis app application applications apps automatic automatically back
    basic basics big book books break broken build building change cheat check class code coding
    commercial common complete computer configuration configure connect create creating custom
    data debug decide define deploy design designing detail develop developer developers
    development docs document documentation documents effective fast feature features file files
    find first fix format free full handle hands high host idea improve inside install issue
    language level library list local machine make making manage management manual match
    method modern move name next number open optimize order part pattern patterns personal pick
    place plan point practice practices prepare prevent problem process product products program
    programming project public purpose put quality remove requirement requirements return review
    right rule rules run running sample save second section secure security self send server
    service set setting settings setup sheet short site slow small smaller software source
    specification standard stop strict structure style system systems task technical test tests
    text textbook theory time tool tools top train turn type update value version view web
    website websites world write writing wrong year
    """
)


def all_words(text: str) -> list[str]:
    """The words in order, in lower case; a hyphen, slash or dot parts two of them."""
    if not text.isascii():
        text = normalize("NFKC", text)
    text = _QUOTES.sub("", text.casefold())
    if "+" in text or "#" in text:
        for spelled, name in _SPELLED:
            text = spelled.sub(name, text)
    return _WORD.findall(text)


def stem(word: str) -> str:
    """What the forms of an English word share; rough on purpose, and the same for both sides."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and len(rest) >= 3 and any(v in rest for v in "aeiouy"):
            if rest[-1] == rest[-2] and rest[-1] not in "lsz":
                word = rest[:-1]  # running, run
            else:
                word = rest if len(rest) > 3 else rest + "e"  # testing, test; typing, type
            break
    if word.endswith(("tion", "sion")) and len(word) > 6:
        word = word[:-3]
    if word.endswith("ll") and len(word) > 5:  # modelling, modeling
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word  # not care, car


def deletions(word: str) -> set[str]:
    """The word with one letter left out. Two words that share one differ by a typo: a letter too
    many, missing, wrong, or two that changed places."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}
