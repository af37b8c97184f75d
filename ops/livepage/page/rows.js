// Rows that keep their elements, and their places while somebody uses them.

// Rows are the rows of a table, or its groups of rows. create returns an element and the
// function that updates it with an item.
export class Rows {
  constructor(container, key, create) {
    this.container = container;
    this.key = key;
    this.create = create;
    this.rows = new Map();
    this.pointed = false;
    container.addEventListener('pointerover', (e) => { this.pointed = e.pointerType === 'mouse' && e.target.closest('tbody') !== null; });
    container.addEventListener('pointerleave', () => { this.pointed = false; });
  }

  // held reports whether the rows must stay where they are: a person points at them, or
  // has the focus of the keyboard there.
  held() {
    return this.pointed || this.container.querySelector('tbody :focus-visible') !== null;
  }

  // show updates the rows. If they are held, none comes, goes or moves, except if the
  // person asked for other rows. It returns how many rows would have come.
  show(items, asked) {
    const wanted = new Map(items.map((item) => [this.key(item), item]));
    for (const [key, item] of wanted) this.rows.get(key)?.update(item);
    let missing = 0;
    for (const key of wanted.keys()) if (!this.rows.has(key)) missing++;
    if (!asked && this.rows.size > 0 && this.held()) {
      for (const [key, row] of this.rows) row.element.classList.toggle('gone', !wanted.has(key));
      return missing;
    }
    const focused = this.container.contains(document.activeElement) ? document.activeElement : null;
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    let at = this.container.tHead ? this.container.tHead.nextElementSibling : this.container.firstElementChild;
    for (const [key, item] of wanted) {
      let row = this.rows.get(key);
      if (!row) {
        row = this.create(item);
        row.update(item);
        this.rows.set(key, row);
      }
      row.element.classList.remove('gone');
      if (row.element === at) at = at.nextElementSibling;
      else this.container.insertBefore(row.element, at);
    }
    if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    return 0;
  }
}
