#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel optional timeout=120
"""The alerts of docs/operations.md: each fires when it should, is quiet when it should not fire, and is explained."""
import json
import os
import re
import shutil
import unittest

import te_proc as te

MINUTES = 30  # that a case lasts; it is looked at five minutes before its end
ENGINE, METAD = 'instance="10.0.0.1:9464"', 'instance="10.0.0.9:8080"'
AT_ENGINE, AT_METAD = {"instance": "10.0.0.1:9464"}, {"instance": "10.0.0.9:8080"}


def grows(by):
    """A counter that grows by so much a minute."""
    return f"0+{by}x{MINUTES}"


def stays(value):
    return f"{value}+0x{MINUTES}"


def falls(minute):
    """1 until that minute, 0 from then on."""
    return f"1+0x{minute - 1} 0+0x{MINUTES - minute}"


def times(fast, slow):
    """Buckets of transfer_engine_request_seconds: so many requests a minute of 1 ms and of 3 s."""
    name = "transfer_engine_request_seconds_bucket{" + ENGINE + ',le="%s"}'
    return {name % "0.001": grows(fast), name % "1": grows(fast), name % "4": grows(fast + slow),
            name % "+Inf": grows(fast + slow)}


def metad(keys, size):
    return {"te_metad_keys{" + METAD + "}": stays(keys), "te_metad_keys_limit{" + METAD + "}": stays(1000),
            "te_metad_bytes{" + METAD + "}": stays(size), "te_metad_bytes_limit{" + METAD + "}": stays(1 << 20)}


def one(name, labels, values):
    return {f"{name}{{{labels}}}": values}


def fences(quiet, unknown):
    return {**one("transfer_engine_fences_quiet_total", ENGINE, grows(quiet)),
            **one("transfer_engine_fences_unknown_total", ENGINE, grows(unknown))}


def hang(inflight, attempts):
    """Requests under way, and pieces of work that one transport ends a minute; another one has ended some before."""
    return {**one("transfer_engine_inflight_requests", ENGINE, stays(inflight)),
            **one("transfer_engine_transport_attempts_total", ENGINE + ',transport="tcp",opcode="read"', grows(attempts)),
            **one("transfer_engine_transport_attempts_total", ENGINE + ',transport="host",opcode="read"', stays(7))}


# {alert: (series in which it fires, with which labels, series in which it does not)}
CASES = {
    "NoAnswer": (one("up", 'job="te_metad",' + METAD, falls(10)), {"job": "te_metad", **AT_METAD},
                 {**one("up", 'job="transfer_engine",' + ENGINE, stays(1)), **one("up", 'job="node"', stays(0))}),
    "TransfersFail": (one("transfer_engine_request_errors_total", ENGINE + ',error="TE_ERR_LINK"', grows(7)), AT_ENGINE,
                      {**one("transfer_engine_request_errors_total", ENGINE + ',error="TE_ERR_LINK"', grows(5)),
                       **one("transfer_engine_request_errors_total", ENGINE + ',error="TE_ERR_CANCELED"', grows(600))}),
    "TransfersStall": (one("transfer_engine_request_stalls_total", ENGINE, f"0+0x22 1+0x{MINUTES - 23}"), AT_ENGINE,
                       one("transfer_engine_request_stalls_total", ENGINE, f"0+0x5 1+0x{MINUTES - 6}")),
    "TransfersHang": (hang(3, 0), AT_ENGINE, hang(3, 1)),
    "TransfersSlow": (times(900, 100), AT_ENGINE, times(999, 1)),
    "PathsFail": (one("transfer_engine_transport_retries_total", ENGINE + ',transport="rdma"', grows(66)),
                  {"transport": "rdma", **AT_ENGINE},
                  one("transfer_engine_transport_retries_total", ENGINE + ',transport="rdma"', grows(54))),
    "PathsChange": (one("transfer_engine_transport_path_changes_total", ENGINE + ',transport="tcp"', grows(66)),
                    {"transport": "tcp", **AT_ENGINE},
                    one("transfer_engine_transport_path_changes_total", ENGINE + ',transport="tcp"', grows(54))),
    "NicDown": (one("transfer_engine_nic_up", ENGINE + ',transport="rdma",nic="mlx5_0"', falls(10)),
                {"transport": "rdma", "nic": "mlx5_0", **AT_ENGINE},
                {**one("transfer_engine_nic_up", ENGINE + ',transport="rdma",nic="mlx5_0"', stays(1)),
                 **one("transfer_engine_nic_up", ENGINE + ',transport="rdma",nic="mlx5_1"', stays(0)),
                 **one("transfer_engine_nic_up", ENGINE + ',transport="tcp",nic="10.0.0.1"', falls(10))}),
    "DescriptorsOld": (one("transfer_engine_request_restarts_total", ENGINE, grows(66)), AT_ENGINE,
                       one("transfer_engine_request_restarts_total", ENGINE, grows(54))),
    "PeersRefused": (one("transfer_engine_served_rejected_total", ENGINE + ',transport="tcp"', grows(66)), AT_ENGINE,
                     one("transfer_engine_served_rejected_total", ENGINE + ',transport="tcp"', grows(54))),
    "KeysRefused": (one("transfer_engine_auth_refused_total", ENGINE + ',cause="key"', grows(7)),
                    {"cause": "key", **AT_ENGINE},
                    one("transfer_engine_auth_refused_total", ENGINE + ',cause="key"', grows(5))),
    "FencesUnknown": (fences(0, 1), AT_ENGINE, fences(1, 60)),
    "InboxFull": (one("transfer_engine_inbox_messages", ENGINE, stays(50001)), AT_ENGINE,
                  one("transfer_engine_inbox_messages", ENGINE, stays(50000))),
    "MetadataDown": (one("transfer_engine_metadata_up", ENGINE, falls(10)), AT_ENGINE,
                     one("transfer_engine_metadata_up", ENGINE, stays(1))),
    "NameTaken": (one("transfer_engine_metadata_name_taken", ENGINE, stays(1)), AT_ENGINE,
                  one("transfer_engine_metadata_name_taken", ENGINE, stays(0))),
    "MetadFull": (metad(901, 10), AT_METAD, metad(900, 943718)),
    "MetadFails": (one("te_metad_requests_total", METAD + ',request="put",status="5xx"', grows(1)), AT_METAD,
                   {**one("te_metad_requests_total", METAD + ',request="put",status="5xx"', stays(8)),
                    **one("te_metad_requests_total", METAD + ',request="get",status="4xx"', grows(60))}),
    "MetadUnwell": (one("probe_success", 'job="te_metad_health",' + METAD, falls(10)),
                    {"job": "te_metad_health", **AT_METAD},
                    {**one("probe_success", 'job="te_metad_health",' + METAD, stays(1)),
                     **one("probe_success", 'job="web"', stays(0))}),
}


def page():
    with open(os.path.join(te.SRC, "docs", "operations.md"), encoding="utf-8") as f:
        return f.read()


def block(first):
    """The block of the page whose first line this is."""
    return re.search(rf"```yaml\n({first}\n.*?)```", page(), re.S)[1]


def alerts():
    return re.findall(r"- alert: (\w+)", block("groups:"))


def case(name, series, labels):
    """A test of promtool: that the alert fires with these labels, or, without any, does not."""
    return {"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series.items()],
            "alert_rule_test": [{"eval_time": f"{MINUTES - 5}m", "alertname": name,
                                 "exp_alerts": [{"exp_labels": labels}] if labels else []}]}


class Alerts(unittest.TestCase):
    def promtool(self, *words, **files):
        """Runs it on files of these texts, the last of which it is given."""
        program = shutil.which("promtool")
        if not program:
            te.skip("promtool is not installed (package prometheus)")
        for name, text in files.items():
            path = os.path.join(te.Workdir.get(), name + ".yml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        run = te.call(program, *words, path)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_each_has_a_case_and_a_row(self):
        rows = re.findall(r"^\| (\w+) \|", page().split("## What each alert means")[1].split("\n## ")[0], re.M)
        self.assertEqual(rows[1:], alerts())
        self.assertEqual(sorted(CASES), sorted(alerts()))

    def test_names(self):
        """Every metric is one that engines or te_metad tell."""
        known = set()
        for name in ("metrics.md", "metad.md"):
            with open(os.path.join(te.SRC, "docs", name), encoding="utf-8") as f:
                known.update(re.findall(r"`((?:transfer_engine|te_metad)_\w+)`", f.read()))
        named = {re.sub("_bucket$", "", name) for name in re.findall(r"\b(?:transfer_engine|te_metad)_\w+(?=[{[ ])",
                                                                     "".join(re.findall("expr: .*", block("groups:"))))}
        self.assertGreater(len(named), 15)
        self.assertLessEqual(named, known)

    def test_rules(self):
        self.promtool("check", "rules", rules=block("groups:"))

    def test_scraping(self):
        self.promtool("check", "config", "--syntax-only", scrape=block("scrape_configs:"))

    def test_fires_and_is_quiet(self):
        tests = [case(name, series, labels) for name, (fires, labels, quiet) in CASES.items()
                 for series, labels in ((fires, labels), (quiet, None))]
        self.promtool("test", "rules", rules=block("groups:"),
                      tests=json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}))


if __name__ == "__main__":
    te.main()
