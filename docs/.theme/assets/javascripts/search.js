/* The site's search, for questions. The theme's engine wants every word of a query in one section, and knows no word that
 * carries no meaning: "how do I stop everything at once" finds nothing. This worker stands before the engine, which still
 * matches, corrects and highlights words. It leaves out what carries no meaning, asks for sections with any of the other
 * words, and ranks those by BM25: rare words, words of titles and sections with many of the words count most, a number
 * little. A page comes before its sections, and tables that are looked up come last.
 */
"use strict";
(() => {
  const SETUP = 0, QUERY = 2, RESULT = 3;
  const AT_MOST = 30;
  const FIELDS = { title: 3, path: 1, text: 1 };
  const SATURATION = 1.2, LENGTH = 0.6, NUMBER = 0.3, WHOLE_PAGE = 1.25, TABLE = 0.5;
  const TABLES = /^(differences|coverage|performance)\b/;
  const WITHOUT_MEANING = new Set((
    "a about again all also am an and any anybody are as at be because been being but by can could did do does doing for " +
    "from get gets getting had has have having how i if in into is it its just let like make makes may me mine must my need no " +
    "not now of on one or our out own please same shall should since so some someone something than that the their them " +
    "then there these they this those to too until us want was way we were what when where which while who whose why " +
    "will with without would you your"
  ).split(" "));

  let sections = [];
  const average = { title: 1, text: 1 };
  importScripts(new URL(self.location.href).searchParams.get("engine"));
  const engine = self.onmessage;
  const page = self.postMessage.bind(self);
  const waiting = [];
  self.postMessage = (message) => waiting.shift()(message);
  const ask = (type, data) => new Promise((resolve) => {
    waiting.push(resolve);
    engine({ data: { type, data } });
  });

  /* "evicted", "evicting" and "evicts" look for what begins with "evict". */
  function stem(word) {
    for (const ending of ["ing", "ies", "ied", "ed", "es", "s", "y", "e"]) {
      const rest = word.slice(0, -ending.length);
      if (word.endsWith(ending) && rest.length > 2 && /[aeiouy]/.test(rest) && !word.endsWith("ss")) {
        return rest.replace(/([bdgmnprt])\1$/, "$1");
      }
    }
    return word;
  }

  function words(input) {
    const found = [...input.matchAll(/[^\s\-_,:!=?()[\]{}\\"'`/.]+(?:\.\d+)*/g)];
    // A letter alone is what is left of "pod's".
    const telling = found.filter(([word]) => word.length > 1 && !WITHOUT_MEANING.has(word.toLowerCase()));
    return (telling.length ? telling : found).map(({ 0: word, index }, at) => ({
      type: "value",
      data: {
        field: "*",
        value: { type: "prefix", data: stem(word.toLowerCase()) },
        range: { start: index, end: index + word.length, value: at },
      },
    }));
  }

  /* Which of the asked words a section has, by field: {title: Map(word → how often), …}. */
  function counts(item, terms) {
    return item.matches.map(({ field, value }) => {
      const often = new Map();
      for (const term of value.text.data) {
        for (const word of terms.get(term) ?? []) often.set(word, (often.get(word) ?? 0) + 1);
      }
      return [field, often];
    });
  }

  function ranked({ items, query }, asked) {
    const terms = new Map();
    query.values.forEach(({ value }, word) => value.forEach((term) => {
      terms.set(term, [...(terms.get(term) ?? []), word]);
    }));
    const counted = items.map((item) => counts(item, terms));
    const having = query.values.map((_, word) => counted.filter((fields) => fields.some(([, often]) => often.has(word))).length);
    items.forEach((item, at) => {
      const section = sections[item.id];
      const weight = (field) => FIELDS[field] / (field in average ? 1 - LENGTH + LENGTH * section[field].length / average[field] : 1);
      let score = 0, met = 0;
      query.values.forEach((_, word) => {
        const often = counted[at].reduce((sum, [field, all]) => sum + weight(field) * (all.get(word) ?? 0), 0);
        if (!often) return;
        met += 1;
        const rarity = Math.log(1 + (sections.length - having[word] + 0.5) / (having[word] + 0.5));
        score += (/^\d+$/.test(asked[word]) ? NUMBER : 1) * rarity * often / (often + SATURATION);
      });
      const kind = TABLES.test(section.location) ? TABLE : section.level === 1 ? WHOLE_PAGE : 1;
      item.rank = kind * score * met / query.values.length;
    });
    return items.sort((one, other) => other.rank - one.rank).slice(0, AT_MOST);
  }

  /* The engine gives its ten best: all are wanted. What it has marked in these ten, it would mark again and spoil. */
  async function others(first, query) {
    const { total, next } = first.data.pagination;
    if (!next) return first;
    const marked = first.data.items.flatMap((item) => item.matches.map((match) => (
      [match, match.value.highlight && { ranges: match.value.highlight.ranges.map((range) => ({ ...range })) }]
    )));
    const all = await ask(QUERY, { ...query, page: { ...next, from: 0, size: total } });
    for (const [match, highlight] of marked) match.value.highlight = highlight;
    return all;
  }

  async function answer(data) {
    // The theme's filters, and what somebody writes with quotation marks, are the engine's.
    if (typeof data.input !== "string" || data.input.includes('"')) return ask(QUERY, data);
    const operands = words(data.input);
    const query = { ...data, input: { type: "operator", data: { operator: "or", operands } } };
    const first = await ask(QUERY, { ...query, page: undefined });
    if (first.type !== RESULT) return first;
    const all = await others(first, query);
    const asked = operands.map((operand) => operand.data.value.data);
    const items = ranked({ ...all.data, query: first.data.query }, asked);
    return { ...all, data: { ...all.data, items, pagination: { total: items.length } } };
  }

  let before = Promise.resolve();
  self.onmessage = ({ data: { type, data } }) => {
    if (type === SETUP) {
      sections = data.items;
      for (const field in average) {
        average[field] = sections.reduce((sum, each) => sum + each[field].length, 1) / Math.max(sections.length, 1);
      }
    }
    before = before.then(async () => page(type === QUERY ? await answer(data) : await ask(type, data)));
  };
})();
