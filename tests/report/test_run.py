"""The report as a whole: it says what the files say, to people, offline."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time

import pytest

from sordino.errors import BadInput
from sordino.report.run import write_report

from .conftest import PLAN, STATEMENT, rounds
from .reader import Page


def read(folder) -> tuple[str, Page]:
    markup = write_report(folder).read_text(encoding="utf-8")
    return markup, Page(markup)


def test_proven_run_says_so_in_plain_words(make):
    _, page = read(make(metrics=rounds(20)))
    for said in (
        "Proven: epsilon 3.988, delta 1e-5",  # 3.98712 rounded up
        "for each record, towards a server that sees sums only.",
        "of a budget of 4",
        "measured on a public test set",
        "A simulation: all data was in one place",
        "REHEARSAL: noise and draws follow from seed 7; anyone who knows the seed can remove them.",
        "The draw stays secret.",
        "Nothing. Every released value went through a mechanism",
        "with probability 0.178",
        "1.183 times the bound",
        "sordino train --plan plan.toml",
        "89.4%",  # the last accuracy
    ):
        assert said in page.text, said
    assert "Not private" not in page.text


def test_what_epsilon_means_is_worked_out(make):
    # epsilon = ln 3, delta = 0: right at most 3/4 of the time; at most 3 times as many found as false alarms.
    from math import log

    plan, statement = PLAN | {"delta": 1e-12}, STATEMENT | {"epsilon": log(3), "delta": 1e-12}
    _, page = read(make(plan=plan, statement=statement))
    assert "guesses right more often than 75.01% of the time" in page.text
    assert "no observer finds more than 0.3" in page.text


def test_not_private_lists_numbered_reasons_and_no_epsilon(make):
    statement = STATEMENT | {
        "epsilon": "inf",
        "epsilon_claimed": 2.5,
        "claim": "each round costs epsilon/T",
        "variant": "published",
        "reasons": ["The exact median is sent.", "The noise is too small."],
        "disclosures": ["Exact norms of every client."],
    }
    markup, page = read(make(plan=PLAN | {"variant": "published"}, statement=statement, metrics=rounds(20)))
    assert "Not private" in page.text and "Proven: epsilon" not in page.text
    reasons = re.search(r'<ol class="reasons">(.*?)</ol>', markup)
    assert reasons and reasons[1].count("<li>") == 3
    assert "Epsilon 2.5 (each round costs epsilon/T). This figure is a claim of the paper." in page.text
    assert "Budget spent" not in page.text  # there is no budget to spend
    assert "Claimed and proven" in page.text and "no bound" in page.text


def test_claimed_proven_and_measured_stand_side_by_side(make):
    audit = {"epsilon_lower": 1.3749, "confidence": 0.95, "largest_provable": 5.4}
    attack = {"results": [{"attack": "lira", "auc": 0.5234, "auc_ci": [0.5, 0.55], "tpr_at_1pct": 0.014}]}
    _, page = read(make(statement=STATEMENT | {"epsilon_claimed": 2.0}, audit=audit, attack=attack, metrics=rounds(20)))
    assert "Claimed, proven, measured" in page.text
    assert "≥ 1.374" in page.text  # rounded down
    assert "at confidence 95%; this audit could have shown 5.4 at most." in page.text
    assert "lira none not recorded 0.523 0.500 to 0.550 1.4%" in page.text
    assert "refuted" not in page.text


def test_measurement_above_the_claim_refutes_it(make):
    _, page = read(make(statement=STATEMENT | {"epsilon_claimed": 1.0}, audit={"epsilon_lower": 2.0}))
    assert "The claim is refuted" in page.text and "Proven: epsilon" in page.text


def test_measurement_above_the_proof_takes_the_verdict_away(make):
    _, page = read(make(audit={"epsilon_lower": 4.5, "confidence": 0.95}))
    assert "Contradicted by the audit" in page.text and "Proven: epsilon" not in page.text


def test_missing_metrics_and_statement(make):
    _, page = read(make())
    assert "No rounds are recorded" in page.text and "not measured" in page.text
    _, page = read(make(statement=None, metrics=rounds(3), name="unfinished"))
    assert "Nothing is established yet" in page.text and "Proven: epsilon" not in page.text


def test_a_bare_plan_and_statement_still_render(make):
    _, page = read(make(plan={"data": "digits"}, statement={"epsilon": 2.0, "delta": 1e-6}))
    assert "Proven: epsilon 2.0, delta 1e-6" in page.text and "None" not in page.text


def test_charts_have_titles_descriptions_and_a_table(make):
    markup, page = read(make(metrics=rounds(20)))
    charts = [a for a in page.all("svg") if a.get("role") == "img"]
    assert len(charts) == 4
    for chart in charts:
        for identity in chart["aria-labelledby"].split():
            assert markup.count(f'id="{identity}"') == 1
    assert "Clipping bound: 0.918 in round 1, 0.357 in round 20" in page.text
    assert "round 5: 64.2%" in page.text  # under the pointer
    assert page.all("table") and "The numbers behind the charts (rounds: 20)" in page.text


def test_timings_are_not_shown(make):
    """How long a round took tells how many took part."""
    assert "0.037" not in read(make(metrics=rounds(20)))[0]


def test_long_run_is_thinned(make):
    folder = make(plan=PLAN | {"rounds": 10_000}, statement=STATEMENT | {"rounds": 10_000}, metrics=rounds(10_000))
    started = time.perf_counter()
    markup, page = read(folder)
    assert time.perf_counter() - started < 5
    assert len(markup) < 250_000
    assert len([a for a in page.all("g") if a.get("class") == "point"]) <= 4 * 120
    assert "40 of 10,000 rounds" in page.text and "round 10,000" in page.text
    table = re.search(r"<tbody><tr><th scope=.row. class=.n.>1</th>.*?</tbody>", markup)[0]
    assert table.count("<tr>") == 40 and table.count("–") == 2  # rounds with a measurement; the first has none


def test_nothing_is_fetched_and_nothing_runs(make):
    markup, page = read(make(metrics=rounds(20), audit={"epsilon_lower": 1.0}))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", markup)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "a", "form", "base"}
    for _, attributes in page.elements:
        assert not any(key.startswith("on") or key in ("style", "href", "src") for key in attributes)
    css = re.search(r"<style>(.*?)</style>", markup, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and f"'sha256-{digest}'" in policy


NASTY = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\" onload='x' &amp; \u202eevil"


def test_no_name_can_inject_markup(make):
    plain = {name for name, _ in read(make(metrics=rounds(20)))[1].elements}
    plan = {k: NASTY if isinstance(v, str) else v for k, v in PLAN.items()} | {NASTY.replace('"', ""): 1}
    plan = {k if k.isidentifier() else "x": v for k, v in plan.items()}
    statement = {k: NASTY if isinstance(v, str) else v for k, v in STATEMENT.items()}
    statement |= {"assumptions": [NASTY], "rule": NASTY, "claim": NASTY, "epsilon_claimed": 1.0, "stopped": NASTY}
    attack = [{"attack": NASTY, "auc": NASTY}]
    audit = {"epsilon_lower": 1.0, "confidence": NASTY}
    folder = make(plan, statement, rounds(20), audit, attack, name="<b onmouseover=alert(3)>&")
    (folder / "plan.toml").write_text((folder / "plan.toml").read_text() + f"[options]\n{json.dumps(NASTY)} = 1\n")
    markup, page = read(folder)
    assert "Proven: epsilon" in page.text
    assert page.text.count("<script>alert(1)</script>") > 10  # as text
    assert "<script" not in markup and "<img" not in markup and "<b on" not in markup
    assert {name for name, _ in page.elements} <= plain | {"rect"}
    assert "\u202e" not in markup


def test_reasons_cannot_inject_either(make):
    _, page = read(make(statement=STATEMENT | {"epsilon": "inf", "reasons": [NASTY], "disclosures": [NASTY + "2"]}))
    assert page.all("script") == [] and page.all("img") == [] and page.text.count("alert(1)") >= 3


def test_same_files_same_bytes_and_rewriting_is_clean(make):
    folder = make(metrics=rounds(20))
    first, again = write_report(folder).read_bytes(), write_report(folder).read_bytes()
    assert first == again
    assert sorted(f.name for f in folder.iterdir()) == ["metrics.jsonl", "plan.toml", "report.html", "statement.json"]


def test_refusals_are_one_sentence(make, tmp_path):
    with pytest.raises(BadInput, match="there is no run folder"):
        write_report(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no plan.toml"):
        write_report(tmp_path / "empty")
    folder = make()
    with pytest.raises(BadInput, match="is a folder"):
        write_report(folder, tmp_path)
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(folder, tmp_path / "absent" / "report.html")
    (folder / "statement.json").write_text('{"epsilon": 1')
    with pytest.raises(BadInput, match="cannot be read"):
        write_report(folder)


def test_written_statements_fit_the_report(make):
    """The statement as the privacy package writes it, not as this test imagines it."""
    from sordino.privacy.statement import Statement

    stated = Statement.from_json(STATEMENT | {"multiplier": [1.0, 2.0], "stopped": "the budget is spent", "rounds": 15})
    _, page = read(make(statement=stated.to_json(), metrics=rounds(15)))
    assert "Proven: epsilon 3.988" in page.text and "1 to 2 times the bound" in page.text
    assert "Training ended after 15 rounds: The budget is spent." in page.text and "of 20 planned" in page.text


def test_statement_and_report_say_the_same_sentences(make):
    """Every phrase of the guarantee that the one prints, the other prints."""
    from sordino.privacy import phrases
    from sordino.privacy.in_numbers import in_numbers
    from sordino.privacy.statement import Statement

    folded = lambda text: "".join(text.split())  # noqa: E731 - markup and wrapping put blanks in different places
    for unit, relation, observer, noise in (
        ("example", "add-remove", "secagg-server", "shares"),
        ("client", "replace-one", "public", "central"),
        ("example", "zero-out", "secagg-server", "local"),
    ):
        words = {"unit": unit, "relation": relation, "observer": observer, "noise": noise}
        stated = Statement.from_json(STATEMENT | words | {"lost": 2, "stopped": "the budget is spent", "seed": 7})
        folder = make(plan=PLAN | words, statement=stated.to_json(), name=f"{unit}-{relation}")
        page, text = folded(read(folder)[1].text), folded(stated.text())
        noun = phrases.NOUN[unit]
        for said in (
            phrases.PROTECTED[unit],
            phrases.AGAINST[observer],
            phrases.NEIGHBOURS[relation].format(unit=noun),
            in_numbers(stated.epsilon, stated.delta, relation, unit),
            phrases.sampling("poisson", unit, "0.178"),
            phrases.LOST.format(lost=2),
            phrases.STOPPED_EARLY,
            phrases.NOTHING_LEFT,
            phrases.SIMULATION,
            phrases.rehearsal(7),
        ):
            assert folded(said) in page and folded(said) in text, said
        assert (folded(phrases.MASKED_LOCAL) in page) == (folded(phrases.MASKED_LOCAL) in text) == (noise == "local")


def test_secure_noise_is_no_rehearsal(make):
    _, page = read(make(plan=PLAN | {"secure": True}, statement=STATEMENT | {"secure": True}))
    assert "Proven: epsilon" in page.text and "REHEARSAL" not in page.text
    _, page = read(make(statement=STATEMENT | {"epsilon": "inf", "reasons": ["r"]}, name="open"))
    assert "REHEARSAL" not in page.text


def test_notes_of_the_scheme_are_listed_as_assumptions(make):
    _, page = read(make(statement=STATEMENT | {"notes": ["Layers were clipped one by one."]}))
    assert "Every client runs the stated software. Layers were clipped one by one." in page.text
