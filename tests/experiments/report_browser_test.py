"""The page of a report in headless Chromium: sorting, filters, pictures."""

import pathlib
import shutil

import pytest
from absl.testing import flagsaver
from PIL import Image

import own_records
import program_flags
import report

sync_api = pytest.importorskip(
  'playwright.sync_api', reason='playwright is not installed'
)
_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
_TASKS = {'navigation': (300.0, 100.0, 1000.0), 'rotation': (20.0, 40.0, 30.0)}
_MODELS = ('dnc', 'ntm', 'lru')


@pytest.fixture(scope='module')
def address(tmp_path_factory):
  """Makes a report of six runs on two tasks, each with two pictures."""
  folder = tmp_path_factory.mktemp('browser') / 'study'
  for task, bounds in _TASKS.items():
    for model, bound in zip(_MODELS, bounds, strict=True):
      own = folder / f'{task}-{model}'
      own_records.write_run(own, model, [bound, bound + 1], task=task)
      for name in ('figures/memory.png', 'dreams/x/dreams.png'):
        (own / name).parent.mkdir(parents=True)
        Image.new('L', (900, 300), 128).save(own / name)
  with program_flags.defined(report.define_flags), flagsaver.flagsaver():
    report.FLAGS(['report.py'])
    report.main(['report.py', str(folder)])
  return (folder / 'report' / 'index.html').as_uri()


@pytest.fixture(scope='module')
def browser():
  """Starts Chromium, that of the system or playwright's own."""
  with sync_api.sync_playwright() as started:
    file = next(filter(None, map(shutil.which, _NAMES)), None)
    file = file or started.chromium.executable_path
    if not pathlib.Path(file).exists():
      pytest.skip('Chromium is not installed')
    browser = started.chromium.launch(executable_path=file)
    yield browser
    browser.close()


@pytest.fixture
def page(browser, address):
  """Opens the report; fails on any error, and on what is from elsewhere."""
  page = browser.new_page(viewport={'width': 1280, 'height': 900})
  said, asked = [], []
  page.on('console', lambda message: said.append(message.text))
  page.on('pageerror', lambda error: said.append(str(error)))
  page.on('request', lambda request: asked.append(request.url))
  page.goto(address)
  yield page
  page.close()
  assert not said
  folder = address.rpartition('/')[0]
  assert all(url.startswith((folder, 'data:')) for url in asked), asked


def _shown(page, column):
  """Returns the texts of a column, of the lines that are seen."""
  return page.eval_on_selector_all(
    '#rows tbody tr',
    f"""lines => lines.filter(line => line.offsetHeight > 0)
      .map(line => line.cells[{column}].innerText.split(/\\s/)[0])""",
  )


def test_the_table_is_sorted_by_a_click_on_a_heading(page):
  assert _shown(page, 1) == ['navigation'] * 3 + ['rotation'] * 3
  heading = page.get_by_role('button', name='negative bound')
  heading.click()
  ascending = ['20.5', '30.5', '40.5', '100.5', '300.5', '1,000.5']
  assert _shown(page, 4) == ascending
  assert _shown(page, 2) == ['dnc', 'lru', 'ntm', 'ntm', 'dnc', 'lru']
  heading.click()
  assert _shown(page, 4) == ascending[::-1]
  assert page.locator('[aria-sort=descending]').count() == 1
  page.get_by_role('button', name='model').click()
  assert _shown(page, 2) == ['dnc', 'dnc', 'lru', 'lru', 'ntm', 'ntm']
  assert page.locator('[aria-sort]').count() == 1


def test_the_page_is_filtered_by_task_and_model(page):
  page.get_by_label('task').select_option('rotation')
  assert _shown(page, 1) == ['rotation'] * 3
  assert page.locator('#shown').inner_text() == '3 of 6 rows'
  assert not page.get_by_role('heading', name='navigation').is_visible()
  assert page.get_by_role('heading', name='rotation').is_visible()
  page.get_by_label('model').select_option('lru')
  assert _shown(page, 2) == ['lru'] and _shown(page, 4) == ['30.5']
  assert page.locator('summary', has_text='rotation-lru').is_visible()
  assert not page.locator('summary', has_text='rotation-dnc').is_visible()
  for name in ('task', 'model'):
    page.get_by_label(name).select_option('')
  assert len(_shown(page, 1)) == 6


def test_every_picture_is_seen(page):
  for each in page.locator('details').all():
    each.locator('summary').click()
  pictures = page.locator('img')
  # Two of each run, and of each task the panels and two kinds of dots.
  assert pictures.count() == 6 * 2 + 2 * 3
  for each in pictures.all():
    each.scroll_into_view_if_needed()
    each.evaluate('image => image.decode()')
    assert each.evaluate('image => image.naturalWidth') > 0
  # A dot for each replica that is in the table.
  dots = page.locator('#rows tbody tr').first.locator('svg').first
  assert dots.locator('circle').count() == 2


def test_the_page_fits_a_phone_and_paper(page):
  page.set_viewport_size({'width': 390, 'height': 844})
  widths = '[document.documentElement.scrollWidth, innerWidth]'
  assert page.evaluate(widths) == [390, 390]
  # A table that is wider scrolls in its own frame.
  wide = page.locator('.wide').first
  assert wide.evaluate('each => each.scrollWidth > each.clientWidth')
  page.emulate_media(media='print')
  assert not page.locator('.filters').is_visible()
  page.set_viewport_size({'width': 1040, 'height': 740})
  assert wide.evaluate('each => each.scrollWidth <= innerWidth')
