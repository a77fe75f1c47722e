"""Verdicts on the claims of a grid: what its rows say of each ask.

All differences are paired by replica, with a 95% t interval. A lead holds if
its whole interval lies above the margin, does not hold if the whole interval
lies at or below it, and cannot be told otherwise. A claim holds if all of its
asks do, and does not hold if one does not.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from studies import leads, markdown
from studies.claims import Ask, Claim, Claims, rows_of
from studies.leads import Verdict
from studies.outcomes import READ_BELOW, Row
from studies.statistics import Difference

NOTE = f"""\
Differences are paired by replica: mean [95% t interval]. A lead *holds* if its
whole interval lies above the margin, *does not hold* if it lies at or below the
margin, and *cannot be told* at this scale otherwise. Rows are *alike* if the
intervals of all their differences lie within the margin; they are not if one
lies outside. A row has learned if the KL of predictable frames is below
{READ_BELOW:g} of that of new frames in all replicas but at most one; it has not
if it is so in at most one. A claim holds if all that it asks does; it does not
hold if one part of it does not. A replica that never reads its memory counts as
if it did so at its last step."""


class Finding(NamedTuple):
  """The verdict on an ask or a claim.

  Attributes:
    verdict: on it.
    evidence: what was compared, with numbers, in words.
  """

  verdict: Verdict
  evidence: tuple[str, ...]


def judge(claim: Claim, ending: str, rows: Mapping[str, Row]) -> Finding:
  """Judges a claim by the rows of one column.

  Args:
    claim: what is claimed.
    ending: of the names of the column's rows.
    rows: of the study, by name.
  """
  findings = []
  for ask in claim.asks:
    names = {row: row + ending for row in rows_of(ask)}
    missing = [name for name in names.values() if name not in rows]
    if missing:
      words = ', '.join(f'`{name}`' for name in dict.fromkeys(missing))
      findings.append(Finding('not run', (f'not there: {words}',)))
    else:
      own = {row: rows[name] for row, name in names.items()}
      findings.append(_KINDS[ask.kind](ask, own))
  evidence = tuple(text for each in findings for text in each.evidence)
  return Finding(_all([each.verdict for each in findings]), evidence)


def section(rows: Mapping[str, Row], claims: Claims) -> list[str]:
  """Returns the heading, the words and the table of a grid's claims."""
  lines = []
  for claim in claims.claims:
    for column, ending in claims.columns.items():
      finding = judge(claim, ending, rows)
      lines.append(
        [
          claim.name,
          claim.says,
          column,
          finding.verdict,
          '; '.join(finding.evidence),
        ]
      )
  headings = ['', 'claim', 'column', 'verdict', 'evidence']
  return [
    '## The claims named beforehand',
    NOTE,
    markdown.table(headings, lines),
  ]


def _all(verdicts: Sequence[Verdict]) -> Verdict:
  """Returns the verdict on a claim that needs all of its parts."""
  for verdict in ('not run', 'does not hold', 'cannot be told'):
    if verdict in verdicts:
      return verdict
  return 'holds'


def _reverse(verdict: Verdict) -> Verdict:
  opposites: dict[Verdict, Verdict] = {
    'holds': 'does not hold',
    'does not hold': 'holds',
  }
  return opposites.get(verdict, verdict)


def _lead(
  rows: Mapping[str, Row], row: str, other: str, metric: str
) -> tuple[Difference | None, str]:
  """Returns the lead of a row over another, and the same in words."""
  lead = leads.lead(rows[row], rows[other], metric)
  what = f'lead of `{row}` over `{other}`'
  return lead, leads.in_words(what, lead, metric)


def _better(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether the first row is better than each of the others."""
  first, *others = ask.groups[0]
  every = {other: _lead(rows, first, other, ask.metric) for other in others}
  return Finding(
    _all([leads.judge(lead, ask.margin) for lead, _ in every.values()]),
    tuple(words for _, words in every.values()),
  )


def _no_better(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether the first row is better than none of the others."""
  first, *others = ask.groups[0]
  every = [
    _better(ask._replace(groups=((first, other),)), rows) for other in others
  ]
  return Finding(
    _all([_reverse(each.verdict) for each in every]),
    tuple(text for each in every for text in each.evidence),
  )


def _alike(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether no two rows differ by more than the margin."""
  verdicts: list[Verdict] = []
  evidence = []
  for one, other in itertools.combinations(ask.groups[0], 2):
    lead, words = _lead(rows, one, other, ask.metric)
    verdicts.append(leads.judge_alike(lead, ask.margin))
    evidence.append(words)
  return Finding(_all(verdicts), tuple(evidence))


def _grows(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether a lead is larger in the second pair than in the first."""
  before, after = (
    leads.leads(rows[row], rows[other], ask.metric) for row, other in ask.groups
  )
  growth = leads.paired(after, before)
  (row, other), (later, later_other) = ask.groups
  what = (
    f'growth of the lead from `{row}` over `{other}` to `{later}` over '
    f'`{later_other}`'
  )
  return Finding(
    leads.judge(growth, ask.margin),
    (leads.in_words(what, growth, ask.metric),),
  )


def _none_best(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether each model is worse than another one on some task."""
  verdicts: list[Verdict] = []
  evidence = []
  for model in range(len(ask.groups[0])):
    found: list[tuple[Verdict, str]] = []
    for group in ask.groups:
      for rival in group[:model] + group[model + 1 :]:
        lead, words = _lead(rows, rival, group[model], ask.metric)
        found.append((leads.judge(lead, ask.margin), words))
    beaten = [text for verdict, text in found if verdict == 'holds']
    if beaten:
      verdicts.append('holds')
      evidence.append(beaten[0])
    else:
      is_best = all(verdict == 'does not hold' for verdict, _ in found)
      verdicts.append('does not hold' if is_best else 'cannot be told')
      names = ', '.join(f'`{group[model]}`' for group in ask.groups)
      evidence.append(f'no model is surely better than {names}')
  return Finding(_all(verdicts), tuple(evidence))


def _learned(ask: Ask, rows: Mapping[str, Row]) -> Finding:
  """Asks whether rows read their memories in all replicas but one."""
  verdicts: list[Verdict] = []
  evidence = []
  for name in ask.groups[0]:
    values = rows[name].values
    new, predictable = values['kl_new'], values['kl_predictable']
    count = int((predictable < READ_BELOW * new).sum())
    n = rows[name].n
    evidence.append(f'`{name}` learned in {count} of {n}')
    if n < 3 or 1 < count < n - 1:
      verdicts.append('cannot be told')
    else:
      verdicts.append('holds' if count >= n - 1 else 'does not hold')
  return Finding(_all(verdicts), tuple(evidence))


_KINDS: Mapping[str, Callable[[Ask, Mapping[str, Row]], Finding]] = {
  'better': _better,
  'no_better': _no_better,
  'alike': _alike,
  'grows': _grows,
  'none_best': _none_best,
  'learned': _learned,
}
