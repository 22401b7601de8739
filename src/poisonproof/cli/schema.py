"""``poisonproof schema``: propose what the columns mean, and freeze what a human confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import (
    FILES,
    ClassesOption,
    EntitiesOption,
    GroupsOption,
    IgnoreOption,
    LabelOption,
    SamplesOption,
    WeightsOption,
    parse_list,
    parse_sides,
)
from poisonproof.cli._screen import check_out, counted, say, shown
from poisonproof.data.columns import Column, ImageColumn, TextColumn
from poisonproof.data.proposing import (
    Proposal,
    ProposalOptions,
    propose_arrays,
    propose_images,
    propose_table,
)
from poisonproof.data.rows import list_kinds
from poisonproof.data.schema import Schema, dump_schema, freeze_schema, load_schema
from poisonproof.data.sources import read_entities
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_bytes
from poisonproof.partition.contributors import TimeBlocks

MOST_SHOWN = 120
MOST_LINES = 100
RARE_SHARE = 0.01
"""A label in a smaller share of the rows is pointed out."""
EPILOG = (
    "Examples: poisonproof schema mails.csv --label kind --out mails.schema.json  |  "
    "poisonproof schema mails.schema.json --freeze"
)


def schema(
    data: Annotated[
        Path,
        typer.Argument(
            help=f"Rows to look at: {FILES}, or a folder of images; or a schema file (.json) to "
            "show or to freeze."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the proposal: a .json file.")
    ] = None,
    label: LabelOption = None,
    groups: GroupsOption = None,
    sources: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The source of each row, out of few.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="When each row was received, by you.")
    ] = None,
    block_days: Annotated[int, typer.Option(min=1, help="Days in a block of --time.")] = 1,
    entities: EntitiesOption = None,
    weights: WeightsOption = None,
    ignore: IgnoreOption = None,
    text: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns to read as texts.")
    ] = None,
    category: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns to read as categories.")
    ] = None,
    date: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns to read as dates.")
    ] = None,
    date_parts: Annotated[
        str | None, typer.Option(metavar="PART,...", help="Of dates also: hour, weekday, month.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of a CSV file.", show_default="as it looks")
    ] = None,
    classes: ClassesOption = None,
    test_share: Annotated[
        float, typer.Option(help="Share of rows held out of training, by a hash of the row.")
    ] = 0.2,
    embedding: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Your sentence-transformers model for texts, instead of hashed n-grams.",
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="HEIGHTxWIDTH", help="Images: resize all to this.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Images: pixels, or orientations (directions of edges).")
    ] = "orientations",
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors",
            help="Images: your network, trained on other data, instead of edges.",
        ),
    ] = None,
    x_key: SamplesOption = None,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Confirm: I have read this schema file.")
    ] = False,
) -> None:
    """Propose how to read a data source, for you to confirm.

    The proposal is made from rows all over the file, which an attacker may have written. Read it
    line by line: types, missing values, categories, and above all the label set. `train` takes only
    a frozen schema, and never looks at types again.
    """
    if data.suffix.lower() == ".json":
        _show_or_freeze(data, freeze)
        return
    if freeze:
        raise InvalidInputError(
            "--freeze confirms a schema file that you have read: poisonproof schema FILE.json "
            "--freeze"
        )
    check_out(out, suffixes=(".json",), inputs=(data,))
    if label is None and not data.is_dir() and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    if len([column for column in (groups, sources, time) if column is not None]) > 1:
        raise InvalidInputError("Certificates count one unit: --groups, --sources or --time.")
    if entities is not None and groups is None:
        raise InvalidInputError("--entities needs --groups COLUMN, the account of every row.")
    # Weeks begin on Mondays, whatever the rows hold.
    partition = None if time is None else TimeBlocks("2001-01-01", days=block_days)
    options = ProposalOptions(
        label=label or ("folder" if data.is_dir() else "y"),
        groups=groups or sources or time,
        sources=sources is not None,
        partition=partition if entities is None else read_entities(entities),
        weights=weights,
        ignore=parse_list(ignore, "--ignore"),
        text=parse_list(text, "--text"),
        category=parse_list(category, "--category"),
        date=parse_list(date, "--date"),
        parts=parse_list(date_parts, "--date-parts"),
        encoding=encoding,
        classes=parse_list(classes, "--classes"),
        test_share=test_share,
        embedding=None if embedding is None else _embedding(embedding),
        network=None if network is None else _network(network, data, size),
    )
    sides = parse_sides(size, "--size", "HEIGHTxWIDTH")
    if data.is_dir():
        proposal = propose_images(data, options, sides, encoder)  # type: ignore[arg-type]
    elif sides is not None:
        raise InvalidInputError("--size is for folders of images.")
    elif data.suffix.lower() == ".npz":
        proposal = propose_arrays(data, options, x_key or "X")
    else:
        proposal = propose_table(data, options)
    if out is not None:
        write_bytes(out, dump_schema(proposal.schema))
    say(*(f"Warning: {line}" for line in proposal.warnings))
    _print(proposal.schema, proposal)
    _print_advice(proposal, out)


def _embedding(folder: Path) -> TextColumn:
    from poisonproof.features.texts import SentenceEmbedding, folder_digest

    digest = folder_digest(folder)
    size = SentenceEmbedding.measure(str(folder))
    return TextColumn(
        name="any", encoder="sentences", size=size, model=str(folder.absolute()), digest=digest
    )


def _network(file: Path, data: Path, size: str | None) -> ImageColumn:
    from poisonproof.features.network_files import open_network

    if not data.is_dir():
        raise InvalidInputError("--network is for folders of images.")
    if size is not None:
        raise InvalidInputError("--network decides the size of the images: leave out --size.")
    found = open_network(file)
    _, channels, height, width = found.shape
    if channels not in (1, 3):
        raise InvalidInputError(
            f"{file} takes images of {channels} channels; image files have 1 or 3."
        )
    return ImageColumn(
        name="image",
        height=height,
        width=width,
        gray=channels == 1,
        encoder="network",
        model=str(file.absolute()),
        digest=found.digest,
        size=found.n_features,
    )


def _show_or_freeze(file: Path, freeze: bool) -> None:
    known = load_schema(file, require_frozen=False)
    if freeze and not known.frozen:
        known = freeze_schema(known)
        write_bytes(file, dump_schema(known))
    _print(known, None)
    if known.frozen:
        k = "" if known.unit == "source" else " -k 50"  # every source has a member of its own
        say(
            f"Frozen: {known.frozen[:16]}. Whoever changes a word of it must freeze it again.",
            f"Next: poisonproof train DATA --schema {file}{k} --out model",
        )
    else:
        say(f"Not frozen. When you agree with it: poisonproof schema {file} --freeze")


def _print(known: Schema, proposal: Proposal | None) -> None:
    table = Table("Column", "Read as", "Missing or invalid", *(["Seen"] if proposal else []))
    notes = {} if proposal is None else proposal.notes
    lines = [
        (column.name, _kind(column), _missing(column)) for column in known.columns[:MOST_LINES]
    ]
    lines += [(name, "ignored", "") for name in known.ignore[:MOST_LINES]]
    for line in lines:
        cells = [*line, notes.get(line[0], "")][: len(table.columns)]
        table.add_row(*(shown(cell, MOST_SHOWN) for cell in cells))
    hidden = len(known.columns) + len(known.ignore) - len(lines)
    say(table)
    if hidden:
        say(f"{hidden:,} more columns are in the file.")
    say(
        f"{counted(len(known.columns), 'column')}, {counted(known.n_features, 'feature')}. Label: "
        f"{shown(str(known.label))}, {counted(len(known.classes), 'class', 'classes')}: "
        f"{', '.join(_quoted(name) for name in known.classes[:20])}"
        f"{', ...' if len(known.classes) > 20 else ''}."
    )
    if known.missing_texts:
        say(f"Missing, where no category is so called: {', '.join(known.missing_texts)}.")
    file = {
        key: value for key, value in known.to_json().items() if key in ("encoding", "delimiter")
    }
    if file:
        say(f"CSV files: {', '.join(f'{key} {value!r}' for key, value in file.items())}.")
    unit = "rows" if known.groups is None else f"{unit_noun(known.unit)} ({shown(known.groups)})"
    if known.partition is not None:
        declared = known.to_json()["partition"]
        if declared["by"] == "entity":
            owners = declared["entities"]
            what = f"{counted(len(owners), 'account')} of {len(set(owners.values())):,}"
        elif declared["by"] == "time":
            what = f"blocks of {counted(declared['days'], 'day')} since {declared['start']}"
        else:
            what = ", ".join(map(shown, declared["sources"]))
        say(f"Certificates count {unit}: {what}.")
    unit = "rows" if known.unit == "source" else unit
    say(f"Held out of training: {100 * known.test_share:g} % of the {unit}, by their hash.")


def _print_advice(proposal: Proposal, out: Path | None) -> None:
    if proposal.n_broken:
        say(
            f"{counted(proposal.n_broken, 'line')} of those looked at "
            f"{'is not a row' if proposal.n_broken == 1 else 'are not rows'} and would be left "
            "out: a wrong number of cells, bytes that are no text, or a line break inside quotes "
            "(one line is one row; keep such texts in Parquet)."
        )
    if proposal.refused:
        refused = sum(proposal.refused.values())
        say(
            f"Of the {proposal.n_looked_at} images looked at {refused} would be left out: "
            f"{list_kinds(proposal.refused)}."
        )
    _print_labels(proposal)
    others = [name for name in proposal.label_counts if name not in proposal.schema.classes]
    if others:
        listed = ", ".join(map(_quoted, others[:10]))
        say(f"Rows with labels that are not among the classes are left out: {listed}.")
    source = counted(proposal.n_rows, "row")
    if proposal.n_total > proposal.n_rows + proposal.n_broken:
        source += f" of {proposal.n_total:,}, from all over the file"
    if proposal.n_looked_at:
        source = f"{counted(proposal.n_rows, 'file')} by name and {proposal.n_looked_at} by content"
    say(
        f"Proposed from {source}. Whoever wrote them took part in the proposal, so read every line."
    )
    if out is None:
        say("Nothing was written; name a file with --out.")
    else:
        say(f"Written to {out}. Correct it, then: poisonproof schema {out} --freeze")


def _print_labels(proposal: Proposal) -> None:
    """Point out labels that may be mistakes."""
    counts, classes = proposal.label_counts, proposal.schema.classes
    once = [name for name, count in counts.items() if count == 1]
    if once:
        say(f"Seen once, a mistake or an attack? Label {', '.join(map(_quoted, once[:10]))}.")
    few = RARE_SHARE * sum(counts.values())
    rare = [name for name, count in counts.items() if 1 < count < few and name in classes]
    if rare:
        listed = ", ".join(f"{_quoted(name)} ({counts[name]:,} rows)" for name in rare[:10])
        say(f"Rare, a mistake? Label {listed}. Remove from the file what is not a label.")
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    for names in [names for names in alike.values() if len(names) > 1][:10]:
        listed = " and ".join(repr(shown(name)) for name in names)
        say(f"The labels {listed} differ in spaces or capitals only: one class or two?")


def _quoted(name: str) -> str:
    """Return a label; in quotes, if spaces at its ends would not be seen."""
    return shown(name) if name.strip() == name else repr(shown(name))


_READ_AS = {
    "number": "number (center {center:g}, scale {scale:g}{written})",
    "date": "date (days since {origin}, scale {scale:g}{written})",
    "category": "category: {categories}",
    "text": "text, {size:,} hashed n-grams",
    "array": "{values} of shape {shape}",
    "image": "{colour} image, {height} x {width}, {encoder}",
}


def _kind(column: Column) -> str:
    values = column.to_json()
    model = Path(values.get("model") or "").name
    if column.type == "text" and values["encoder"] == "sentences":
        return f"text, {values['size']} numbers by {model}"
    if column.type == "image":
        network = values["encoder"] == "network"
        made = f"{values['size']:,} numbers by {model}" if network else f"as {values['encoder']}"
        values["encoder"] = made
    values["colour"] = "gray" if values.get("gray") else "colour"
    written = [values.get("unit"), values.get("format"), *values.get("parts", ())]
    values["written"] = "".join(f", {part}" for part in written if part)
    values["categories"] = ", ".join(name[:20] for name in values.get("categories", ()))
    values["shape"] = "x".join(map(str, values.get("shape", ())))
    return _READ_AS[column.type].format(**values)


def _missing(column: Column) -> str:
    missing = column.to_json().get("missing", "reject")
    words = {
        "reject": "row left out",
        "nan": "stays missing",
        "other": "category 'other'",
        "empty": "empty text",
    }
    return words.get(missing, f"becomes {missing}")
