"use strict";
// Shows the tensors that match the search. Text from the checkpoint is only ever set as textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const rows = document.getElementById("rows");
  const found = document.getElementById("found");
  const search = document.getElementById("search");
  const MOST = 200;
  const size = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
    return (unit === 0 ? bytes : bytes.toFixed(1)) + " " + units[unit];
  };
  const cell = (row, text, style) => {
    const td = document.createElement("td");
    td.textContent = text;
    if (style) td.className = style;
    row.append(td);
  };
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    const matches = data.tensors.filter((t) => {
      const text = (t[0] + " " + data.dtypes[t[1]]).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    rows.replaceChildren(...matches.slice(0, MOST).map((t) => {
      const row = document.createElement("tr");
      cell(row, t[0], "key");
      cell(row, data.dtypes[t[1]]);
      cell(row, "[" + t[2].join(", ") + "]");
      cell(row, size(t[3]), "number");
      cell(row, t[4], "number");
      cell(row, t[5].map((f) => data.files[f]).join(", ") + (t[6] > t[5].length ? " and " + (t[6] - t[5].length) + " more" : ""));
      return row;
    }));
    found.textContent = matches.length + " of " + data.tensors.length + " tensors" +
      (matches.length > MOST ? ", the first " + MOST + " are shown" : "");
  };
  const fromLink = () => {
    const match = /^#q=(.*)$/.exec(location.hash);
    if (match) { try { search.value = decodeURIComponent(match[1]); } catch { search.value = ""; } }
    show();
  };
  search.addEventListener("input", show);
  addEventListener("hashchange", fromLink);
  fromLink();
})();
