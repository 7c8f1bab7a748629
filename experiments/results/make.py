"""Make the result page: `python experiments/results/make.py` from the kept records, with `--fresh` from new trainings.

Every study is a search below `--work`; finished ones are not trained again, so an interrupted run is resumed.
"""

import argparse
from pathlib import Path

import duel
import page
import rules_compute
import studies

from rst_tune.report.figures import write_png

WIDTH = 1000


def refresh(work: Path, records: Path, only: list[str], fashion: Path | None) -> None:
    """Train every study to its end and keep its record."""
    for name, study in studies.STUDIES.items():
        if not only or name in only:
            studies.train(study, work)
            studies.keep(study, work, records)
    if not only or rules_compute.NAME in only:
        rows = work / f"{rules_compute.NAME}.jsonl"
        rules_compute.run_all(rows, fashion, processes=2)
        rules_compute.keep(rows, records)
    if not only or duel.NAME in only:
        duel.train(work / duel.NAME)
        duel.keep(work / duel.NAME, records)


def main() -> None:
    """Train where `--fresh` is given, then write the page and its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="train first, then keep the new records")
    names = [*studies.STUDIES, rules_compute.NAME, duel.NAME]
    parser.add_argument("--only", action="append", default=[], choices=names)
    parser.add_argument("--work", type=Path, default=studies.WORK, help="where the searches are")
    parser.add_argument("--fashion", type=Path, help="Fashion-MNIST as .npz, for one task of rules_compute")
    parser.add_argument("--records", type=Path, default=studies.KEPT)
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--no-images", action="store_true", help="write the text alone")
    given = parser.parse_args()
    if given.fresh:
        refresh(given.work, given.records, given.only, given.fashion)
    made = page.build(given.records)
    (given.docs / "images").mkdir(parents=True, exist_ok=True)
    (given.docs / "results.md").write_text(made.text, encoding="utf-8")
    for name, figure in {} if given.no_images else made.pictures.items():
        print(write_png(figure, given.docs / "images" / f"{name}.png", width=WIDTH))
    print(given.docs / "results.md")


if __name__ == "__main__":
    main()
