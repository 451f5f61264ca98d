# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes what it is told to, and the dashboard that is asked of it."""
import json
import os
import shutil
import urllib.parse
import urllib.request

import te_proc as te

DASHBOARD = os.path.join(te.SRC, "docs", "grafana", "transfer_engine.json")


def queries():
    """[(title of the panel, query)] of the dashboard, for all instances and rates over 10 s."""
    with open(DASHBOARD, encoding="utf-8") as f:
        panels = json.load(f)["panels"]
    return [(p["title"], t["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*"))
            for p in panels for t in p.get("targets", [])]


class Prometheus(te.Proc):
    """Scrapes {job: [address, ...]} each second."""

    def __init__(self, **jobs):
        program = shutil.which("prometheus")
        if not program:
            te.skip("prometheus is not installed (package prometheus)")
        folder = te.Workdir.get()
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as f:
            json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]} for job, addresses in jobs.items()]}, f)
        for port in te.free_ports():
            self.base = f"http://127.0.0.1:{port}/api/v1/"
            super().__init__([program, f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                              f"--web.listen-address=127.0.0.1:{port}"])
            try:
                self.wait_error("Server is ready to receive web requests")
                break
            except AssertionError:
                if "address already in use" not in self.error_output():
                    raise
                self.close()

    def ask(self, what, **parameters):
        with urllib.request.urlopen(self.base + what + "?" + urllib.parse.urlencode(parameters),
                                    timeout=te.HANG_S) as answer:
            return json.load(answer)["data"]["result"]

    def now(self, query):
        """[(labels, number)] of the series that a query gives."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=query)]
