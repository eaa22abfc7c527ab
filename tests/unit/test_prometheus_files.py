"""Alert rules and the dashboard: what they ask for is exported, and rules do right."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.monitoring import exporter
from tests.unit.promql import Series, firing, seconds, selectors

DEPLOY = Path(__file__).parents[2] / "infra" / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = json.loads((DEPLOY / "grafana" / "rollstream.json").read_text())
TESTS = yaml.safe_load((PROMETHEUS / "alerts.test.yaml").read_text())
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
EXPORTED = {series.name: set(series.labels) for series in exporter.SERIES}
EXPORTED["up"] = set()  # Prometheus' own
TARGET = {"job", "instance"}


def panels(of=DASHBOARD):
    for panel in of["panels"]:
        yield panel
        yield from panels(panel) if "panels" in panel else ()


def queries():
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"{panel['title']}: {target['refId']}", target["expr"]


def plain(query):
    """The query as Grafana sends it."""
    return re.sub(r"\$__rate_interval|\$__range", "5m", query)


@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(plain(query), id=name) for name, query in queries()),
        *(pytest.param(rule["expr"], id=name) for name, rule in RULES.items()),
    ],
)
def test_what_is_asked_for_is_exported(text):
    found = selectors(text)
    assert found
    for selector in found:
        assert selector.name in EXPORTED
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= EXPORTED[selector.name] | TARGET, selector.name
    if labels := re.search(r"\b(?:by|on) \(([\w, ]+)\)", text):
        known = set.union(*(EXPORTED[selector.name] for selector in found))
        assert set(labels[1].replace(" ", "").split(",")) <= known


@pytest.mark.parametrize(
    "text", [q for _, q in queries()] + [r["expr"] for r in RULES.values()]
)
def test_only_counters_have_rates_and_only_others_have_differences(text):
    for name in re.findall(r"(?:rate|increase)\((\w+)", text):
        assert name.endswith("_total")
    for name in re.findall(r"delta\((\w+)", text):
        assert not name.endswith("_total")


@pytest.mark.parametrize(
    ("test", "case"),
    [
        pytest.param(
            test, case, id=f"{case['alertname']} {case['eval_time']}: {test['name']}"
        )
        for test in TESTS["tests"]
        for case in test["alert_rule_test"]
    ],
)
def test_rules(test, case):
    interval_s = seconds(test["interval"])
    series = [
        Series.parse(each["series"], each["values"], interval_s)
        for each in test["input_series"]
    ]
    every_s = seconds(TESTS["evaluation_interval"])
    rule = RULES[case["alertname"]]
    found = firing(rule, series, every_s, seconds(case["eval_time"]))
    expected = [
        {name: str(value) for name, value in each["exp_labels"].items()}
        for each in case.get("exp_alerts", ())
    ]
    key = sorted(found, key=lambda labels: sorted(labels.items()))
    assert key == sorted(expected, key=lambda labels: sorted(labels.items()))


def test_each_rule_is_tested_on_and_off():
    for wanted in (True, False):
        tested = {
            case["alertname"]
            for test in TESTS["tests"]
            for case in test["alert_rule_test"]
            if bool(case.get("exp_alerts")) == wanted
        }
        assert not RULES.keys() - tested, f"never {'on' if wanted else 'off'}"


def test_rules_say_whom_they_are_about_and_how_bad_it_is():
    for rule in RULES.values():
        assert rule["labels"]["severity"] in ("warning", "critical")
        summary = rule["annotations"]["summary"]
        known = set.union(*(EXPORTED[s.name] for s in selectors(rule["expr"])))
        assert set(re.findall(r"\$labels\.(\w+)", summary)) <= known


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")
@pytest.mark.parametrize(
    "words",
    [("check", "config", "prometheus.yaml"), ("test", "rules", "alerts.test.yaml")],
)
def test_promtool_agrees(words):
    done = subprocess.run(
        ["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_have_titles_places_and_the_datasource_of_the_dashboard():
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["title"] and panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", "".join(query for _, query in queries())))
    assert {name for name in used if not name.startswith("__")} <= names


def test_variables_ask_for_what_is_exported():
    asked = [
        re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"]
        )
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    ]
    assert asked and all(found[2] in EXPORTED[found[1]] for found in asked)
