// One table that is sorted by its columns' names and searched by its first column.
const body = document.querySelector(".sorted tbody");
document.getElementById("search")?.addEventListener("input", event => {
  const sought = event.target.value.trim().toLowerCase();
  for (const row of body.rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(sought);
});
document.querySelectorAll(".sorted th button").forEach((button, column, all) => button.addEventListener("click", () => {
  const head = button.parentElement, up = head.getAttribute("aria-sort") === "descending";
  const key = row => row.cells[column].querySelector("data")?.value ?? row.cells[column].textContent;
  all.forEach(one => one.parentElement.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const order = (a, b) => column ? key(a) - key(b) : key(b).localeCompare(key(a));
  body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
}));
