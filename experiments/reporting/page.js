'use strict';
const table = document.getElementById('rows');
const filters = [...document.querySelectorAll('.filters select')];
const shown = document.getElementById('shown');

// The number of a cell: in full where there is one, else that it begins with.
function number(cell) {
  const text = cell.dataset.value ?? cell.textContent.replaceAll(',', '');
  return Number.parseFloat(text);
}

function compare(a, b) {
  const [x, y] = [number(a), number(b)];
  if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
  return a.textContent.localeCompare(b.textContent);
}

function sort(heading) {
  const column = heading.cellIndex;
  const sign = heading.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
  const isMissing = (row) => row.cells[column].textContent === '-';
  const rows = [...table.tBodies[0].rows];
  // Cells without a value are last in either order.
  rows.sort((a, b) => isMissing(a) - isMissing(b) ||
    sign * compare(a.cells[column], b.cells[column]));
  for (const each of table.querySelectorAll('[aria-sort]')) {
    each.removeAttribute('aria-sort');
  }
  heading.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
  table.tBodies[0].append(...rows);
}

function filter() {
  const wanted = filters.filter((each) => each.value);
  for (const each of document.querySelectorAll('[data-task]')) {
    each.hidden = wanted.some((select) =>
      select.name in each.dataset && each.dataset[select.name] !== select.value);
  }
  const rows = [...table.tBodies[0].rows];
  const count = rows.filter((row) => !row.hidden).length;
  shown.textContent = `${count} of ${rows.length} rows`;
}

if (table) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.firstChild.addEventListener('click', () => sort(heading));
  }
  for (const each of filters) each.addEventListener('change', filter);
  filter();
}
