"""How the page of `verify` looks: on a screen, light or dark, and on paper."""

from __future__ import annotations

RULES = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c2330; --dim: #5d6778; --line: #d8dde6; --soft: #f4f6f9;
  --good: #11703c; --bad: #b3261e; --doubt: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181f; --ink: #e4e8ee; --dim: #98a2b3; --line: #323a47; --soft: #1c222b;
    --good: #5fd08c; --bad: #ff8a80; --doubt: #f0b84c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 76rem;
  background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h4 { font-size: .8rem; margin: 1rem 0 .25rem; color: var(--dim); text-transform: uppercase; letter-spacing: .05em; }
section { border-top: 1px solid var(--line); padding: 1.25rem 0 .5rem; margin-top: 1.25rem; }
.sum { font-size: 1.05rem; padding: .6rem .9rem; border-left: .3rem solid; background: var(--soft); margin: 0 0 1rem; }
.sum.good { border-color: var(--good); } .sum.bad { border-color: var(--bad); }
.sum.doubt { border-color: var(--doubt); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 .75rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.wide { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92em; }
th { text-align: left; color: var(--dim); font-weight: 600; white-space: nowrap; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 5rem; } td:first-child { overflow-wrap: break-word; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.number + td:not(.number), th.number + th:not(.number) { padding-left: 1.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: var(--soft); padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0; }
ul { margin: .25rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
a { color: inherit; }
.mark { font-size: .85em; font-weight: 600; white-space: nowrap; }
.mark.good { color: var(--good); } .mark.bad { color: var(--bad); } .mark.doubt { color: var(--doubt); }
.mark.none, .note { color: var(--dim); } .note { font-size: .92em; margin: .25rem 0; }
footer { margin-top: 2rem; padding-top: .75rem; border-top: 1px solid var(--line); color: var(--dim); font-size: .9em; }
@media print {
  :root { --paper: #fff; --ink: #000; --dim: #444; --line: #bbb; --soft: #f4f4f4; --good: #064; --bad: #900; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  section { break-inside: auto; } tr, h3, h4 { break-inside: avoid; } h3, h4 { break-after: avoid; }
  .wide { overflow: visible; }
}
"""
