// The order of search results. A page whose own title has a word of the query comes before pages that mention it, and a page that tells
// how to do something before a page that is looked up by its name.
const words = new Set(
  (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/[^\w.]+/).filter(Boolean)
);
const stem = word => word.replace(/(ing|es|s)$/, "");
const places = [
  [/^(install|loaders|performance|index)$/, 4],
  [/^guides\/index$|^operators\/index$|^reference\/index$|^examples\/index$/, -2],
  [/^guides\/names$/, 6],
  [/^guides\//, 4],
  [/^examples\//, 1],
  [/^reference\/(architecture|notes)$|^measurements$/, -12],
  [/^reference\//, 2],
  [/^operators\//, -1],
];

var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) => {
    const names = title.split(" > ")[0].toLowerCase().split(/[^\w.]+/);
    const own = names.flatMap(name => name.split(".").map((_, k, parts) => parts.slice(k).join("."))).map(stem);
    own.push(...names.flatMap(name => name.split(/[._]/)).map(stem));
    const named = [...words].filter(word => kind !== "object" && (own.includes(stem(word)) || names.includes(word)));
    const place = places.find(([pattern]) => pattern.test(page));
    return score + 24 * (named.length / Math.max(words.size, 1)) ** 2 + (place ? place[1] : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
