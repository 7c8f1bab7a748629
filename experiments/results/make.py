"""Make the result page: `python experiments/results/make.py` from the kept records, with `--fresh` from new trainings.

What is recorded is not trained again, so an interrupted run is resumed.
"""

import argparse
import time
from pathlib import Path

import duel
import page
import paper_scale
import stages
import studies
import trainings
from png import write_png

WIDTH = 1000


def refresh(work: Path, records: Path, only: list[str], until: float | None) -> None:
    """Train what is missing and keep the records: the tasks stage by stage, the grids, the searches."""
    tasks = [name for name in trainings.TASKS if not only or name in only]
    found = list(trainings.records(tasks, kept=records, work=work, until=until).values())
    stages.run(found)
    stages.judge_start(found)
    for name, study in studies.STUDIES.items():
        if (not only and studies.kept(name, records) is None) or name in only:
            studies.train(study, work)
            studies.keep(study, work, records)
    if duel.NAME in only:
        duel.train(work / duel.NAME)
        duel.keep(work / duel.NAME, records)


def main() -> None:
    """Train where `--fresh` is given, then write the page and its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="train first, then keep the new records")
    names = [*trainings.TASKS, *studies.STUDIES, duel.NAME]
    parser.add_argument("--only", action="append", default=[], choices=names)
    parser.add_argument("--minutes", type=float, help="stop training after so long; the next run resumes")
    parser.add_argument("--work", type=Path, default=studies.WORK, help="where new trainings and searches are")
    parser.add_argument("--records", type=Path, default=studies.KEPT)
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--no-images", action="store_true", help="write the text alone")
    given = parser.parse_args()
    if given.fresh:
        until = None if given.minutes is None else time.time() + 60 * given.minutes
        refresh(given.work, given.records, given.only, until)
    made = page.build(given.records)
    (given.docs / "images").mkdir(parents=True, exist_ok=True)
    (given.docs / "results.md").write_text(made.text, encoding="utf-8")
    (given.docs / "paper_scale.md").write_text(paper_scale.page(), encoding="utf-8")
    for name, figure in {} if given.no_images else made.pictures.items():
        print(write_png(figure, given.docs / "images" / f"{name}.png", width=WIDTH))
    print(given.docs / "results.md")


if __name__ == "__main__":
    main()
