#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which parts .ci/run chooses: within its hour, and each part often enough, whatever its table says."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPT = os.path.join(ROOT, ".ci", "run")
COUNTS = 31


def run(*arguments, script=SCRIPT):
    return subprocess.run(["bash", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=600, check=False)


def plan(count, script=SCRIPT):
    """({part: minutes} of those that run now, {part: commits until it comes} of the others)"""
    done = run("--plan", str(count), script=script)
    assert done.returncode == 0, done.stderr
    now = {name: int(m) for name, m in re.findall(r"^ci: now: (\S+), (\d+) minutes$", done.stdout, re.M)}
    later = {name: int(n) for name, n in re.findall(
        r"^ci: not now: (\S+), \d+ minutes; at the latest in (\d+) commits$", done.stdout, re.M)}
    return now, later


class Parts(unittest.TestCase):
    def test_each_row_of_systems_has_a_part(self):
        listed = run("--list").stdout
        named = set(" ".join(re.findall(r"make systems SYSTEMS=('[^']*'|\S+)", listed)).replace("'", "").split())
        rows = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "systems", "run.py"), "--list"],
                              stdout=subprocess.PIPE, text=True, timeout=600, check=True).stdout
        found = re.findall(r"(?m)^(\S+): .* \((\S+)\)$", rows)
        self.assertGreater(len(found), 10)
        self.assertEqual([name for name, group in found if not named & {name, group}], [])

    def test_each_preset_is_built(self):
        with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as f:
            presets = {preset["name"] for preset in json.load(f)["configurePresets"]}
        with open(SCRIPT, encoding="utf-8") as f:
            text = f.read()
        built = set(re.findall(r"\bmake (\w+)", text)) | set(re.findall(r"--preset (\w+)", text))
        self.assertIn("make sim ATOMICS=1", text)  # without ATOMICS it is the preset release
        self.assertEqual(presets - built, set())


class Turns(unittest.TestCase):
    def changed(self, old, new):
        """A copy of the script with another table, which stands in no repository."""
        folder = tempfile.mkdtemp(prefix="te-ci-test-")
        self.addCleanup(shutil.rmtree, folder)
        os.mkdir(os.path.join(folder, ".ci"))
        with open(SCRIPT, encoding="utf-8") as f:
            text = f.read()
        self.assertRegex(text, old)
        with open(os.path.join(folder, ".ci", "run"), "w", encoding="utf-8") as f:
            f.write(re.sub(old, new, text, count=1))
        return os.path.join(folder, ".ci", "run")

    def check_turns(self, script=SCRIPT):
        plans = [plan(count, script) for count in range(COUNTS)]
        listed = re.findall(r"^(always|turn) +\d+ +(\S+)", run("--list", script=script).stdout, re.M)
        self.assertEqual(len({name for _, name in listed}), len(listed))
        for count, (now, later) in enumerate(plans):
            self.assertEqual(set(now) | set(later), {name for _, name in listed})
            self.assertLessEqual(sum(now.values()), 60, f"after {count} commits")
            for name, wait in later.items():
                self.assertIn(wait, (1, 2))
                self.assertIn(name, plan(count + wait, script)[0])
        for when, name in listed:
            for count in range(COUNTS if when == "always" else COUNTS - 2):
                among = plans[count:count + (1 if when == "always" else 3)]
                self.assertTrue(any(name in now for now, _ in among), f"{name} after {count} commits")

    def test_the_table(self):
        self.check_turns()

    def test_another_part_takes_its_turn(self):
        self.check_turns(self.changed(r'( +"turn +)\d+( +tsan .*"\n)', r'\g<1>12\2\g<1>2 more true"\n'))

    def test_a_part_that_fits_nowhere(self):
        done = run("--plan", "0", script=self.changed(r'("turn +)\d+( +tsan)', r"\g<1>50\2"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("tsan does not fit", done.stderr)

    def test_parts_that_fit_one_by_one_but_not_together(self):
        more = "".join(f'"turn 20 more{i} true"\n' for i in range(4))
        done = run("--plan", "0", script=self.changed(r"(?<=parts=\(\n)", more))
        self.assertEqual(done.returncode, 2)

    def test_without_a_number_of_commits(self):
        done = run("--plan", script=self.changed("usage", "usage"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the day counts", done.stderr)

    def test_names(self):
        self.assertEqual(run("no-such-part").returncode, 2)
        self.assertEqual(run("--no-such-option").returncode, 2)


if __name__ == "__main__":
    unittest.main()
