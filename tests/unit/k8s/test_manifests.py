"""Every manifest keeps every policy, fits its schema, and follows from the file that it repeats."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from infra.k8s import strimzi
from services.projection.engine.roles import ROLES
from tests.unit.k8s import policies, process_policies
from tests.unit.k8s.manifests import K8S, ROOT, ROOTS, TOOLS, Manifests, of_kind, render, tool
from tests.unit.k8s.policies import Policy, from_files

POLICIES: tuple[Policy, ...] = (
    policies.limits,
    policies.probes,
    policies.restricted,
    policies.images,
    policies.spread,
    policies.disruption,
    policies.listeners,
    policies.topics,
    policies.users,
    policies.identities,
    policies.durability,
    policies.mirror,
    process_policies.modules,
    process_policies.settings,
    process_policies.secrets,
    process_policies.slots,
    process_policies.replicas,
    process_policies.grace,
    process_policies.hosts,
    process_policies.flows,
    process_policies.references,
)


# Their schemas have alternatives (`oneOf`) that a strict one cannot express: `make test-k8s-api` checks them.
ALTERNATIVES = "KafkaConnect,KafkaMirrorMaker2,KafkaBridge"


@cache
def rendered(root: str) -> Manifests:
    return render(K8S / root)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_policy(policy: Policy, root: str) -> None:
    assert [*policy(rendered(root))] == []


@pytest.mark.parametrize("root", ROOTS)
def test_schema(root: str, tmp_path: Path) -> None:
    kubeconform, schemas = tool("kubeconform"), Path(TOOLS) / "schemas"
    if kubeconform is None or not TOOLS or not schemas.is_dir():
        pytest.skip("schemas not compared: $DAYBOOK_K8S_TOOLS has no kubeconform and schemas")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(rendered(root)))
    location = f"{schemas}/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json"
    done = subprocess.run(
        [
            kubeconform,
            "-strict",
            "-skip",
            ALTERNATIVES,
            "-schema-location",
            location,
            str(tmp_path / "all.yaml"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_topics_and_users_follow_from_the_catalogue() -> None:
    assert strimzi.drift() == []


def test_drift_is_seen(tmp_path: Path) -> None:
    assert len(strimzi.write(tmp_path)) == len(strimzi.resources())
    assert strimzi.drift(tmp_path) == []
    topic = tmp_path / strimzi.TOPICS / "order.events.yaml"
    topic.write_text(topic.read_text().replace("partitions: 2", "partitions: 3"))
    (topic.parent / "nobodys.yaml").write_text("kind: KafkaTopic\n")
    assert [reason.split()[0] for reason in strimzi.drift(tmp_path)] == [
        "infra/k8s/kafka/topics/order.events.yaml",
        "infra/k8s/kafka/topics/nobodys.yaml",
    ]
    strimzi.write(tmp_path)
    assert strimzi.drift(tmp_path) == []


def files() -> list[Path]:
    return sorted(path for path in K8S.rglob("*.yaml"))


def test_each_file_says_why_and_holds_one_resource() -> None:
    texts = {str(path.relative_to(K8S)): path.read_text("utf-8") for path in files()}
    assert [path for path, text in texts.items() if len([*yaml.safe_load_all(text)]) != 1] == []
    manifests = {path: text for path, text in texts.items() if not path.endswith("kustomization.yaml")}
    assert [path for path, text in manifests.items() if "kind: " in text and "# " not in text] == []


def test_each_file_is_used() -> None:
    used = set()
    for path in files():
        if path.name == "kustomization.yaml":
            content = yaml.safe_load(path.read_text("utf-8"))
            named = [*content.get("resources", ()), *content.get("components", ())]
            named += [patch["path"] for patch in content.get("patches", ()) if "path" in patch]
            used |= {(path.parent / name).resolve() for name in named}
    folders = {path / "kustomization.yaml" for path in used if path.is_dir()} | {
        K8S / root / "kustomization.yaml" for root in ROOTS
    }
    assert [str(path.relative_to(K8S)) for path in files() if path not in used | folders] == []


BEARER = "value.converter.apicurio.rest.request.headers.Authorization"


@pytest.mark.parametrize(
    ("name", "source", "own"),
    [
        (
            "settled-orders",
            "distributed/settled-orders.json",
            {"connection.password", "connection.url", BEARER},
        ),
        ("supplier-prices", "standalone/supplier-prices.json", {"file"}),
    ],
)
def test_a_connector_is_that_of_the_other_stacks(name: str, source: str, own: set[str]) -> None:
    spec = from_files(f"infra/k8s/overlays/connect/{name}.yaml")["spec"]
    config = {**from_files(f"infra/connect/{source}")["config"]}
    assert (spec["class"], str(spec["tasksMax"])) == (config.pop("connector.class"), config.pop("tasks.max"))
    assert {
        key for key in config.keys() | spec["config"].keys() if config.get(key) != spec["config"].get(key)
    } == own


def test_metrics_are_those_of_the_other_stacks() -> None:
    rules = yaml.safe_load(from_files("infra/k8s/kafka/metrics.yaml")["data"]["rules.yaml"])
    others = {**from_files("infra/monitoring/jmx.yml")}
    assert rules == {key: value for key, value in others.items() if key != "hostPort"}


def test_alarms_of_two_sites_are_those_of_the_other_stacks() -> None:
    groups = {
        group["name"]: group["rules"]
        for group in from_files("infra/k8s/overlays/monitoring/rules.yaml")["spec"]["groups"]
    }
    others = from_files("infra/monitoring/rules.yml")["groups"][0]["rules"]
    expressions = {rule["alert"]: rule["expr"] for rule in groups["sites"]}
    assert expressions.keys() == {rule["alert"] for rule in others if "alert" in rule}
    assert expressions["MirrorLateOrUnknown"] == others[0]["expr"]


def test_alarms_name_series_that_exist() -> None:
    """The shop's own series: those of the page that lists them."""
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    rules = str([*of_kind([from_files("infra/k8s/overlays/monitoring/rules.yaml")], "PrometheusRule")])
    names = set(re.findall(r"daybook_\w+", rules))
    assert len(names) > 5
    assert [name for name in names if f"`{name}`" not in page] == []


def test_secrets_are_those_that_pods_mount() -> None:
    def made() -> dict[str, dict[str, str]]:
        command = ["sh", str(K8S / "make-secrets"), "postgres"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {
            secret["metadata"]["name"]: secret["stringData"] for secret in yaml.safe_load_all(text) if secret
        }

    secrets, others = made(), made()
    assert secrets.keys() == {name for name in policies.SECRETS if not name.endswith("-ca-cert")}
    assert all(secrets[name] != others[name] for name in secrets)
    # a file whose name is no setting would be ignored
    files = {name for secret in secrets.values() for name in secret if name != "password"}
    assert {name.upper() for name in files} <= process_policies.setting_names()
    passwords = yaml.safe_load(secrets["database-superuser"]["daybook_role_passwords"])
    assert passwords.keys() == set(ROLES)
    assert (
        f"postgresql://query:{passwords['query']}@postgres:5432/daybook" in secrets["query-database"].values()
    )
