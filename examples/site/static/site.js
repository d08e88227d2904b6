// The side bar begins where the current page is listed.
const list = document.querySelector(".sidebar-scroll");
const current = document.querySelector(".sidebar-tree .current-page > .reference");
if (list && current) {
  const below = current.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (below > list.clientHeight - 100) list.scrollTop = below - list.clientHeight / 2;
}
