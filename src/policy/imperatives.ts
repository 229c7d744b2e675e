/**
 * Finds sentences that tell a model what to do, and tags that imitate a system prompt. For people who compare two versions of
 * a tool: a match is a reason to read the sentence, not a verdict.
 */
const steering = [
  /\b(?:you (?:must|should|need to)|must (?:always|never|first|not)|always|never|do not|don't|make sure|be sure|remember to)\b/i,
  /\b(?:ignore|disregard|forget|override|bypass)\b.{0,60}\b(?:instruction|previous|above|rule|tool|prompt|user|warning)/i,
  /\b(?:before|after|instead of) (?:using|calling|any|every|each|all|this|the other)\b/i,
  /\b(?:send|include|pass|read|upload|forward|copy|reveal|print|attach|append)\b.{0,80}(?:secret|password|credential|token|api key|private key|\.ssh|\.env|conversation|history|system prompt)/i,
  /<\/?\s*(?:important|system|instructions?|secret|assistant|user)\b|^\s*(?:important|system|assistant)\s*:/i,
];
/** Bound of the text that is searched, and of the sentences that are named. */
const textChars = 64 * 1024;
const sentencesMax = 10;

/** The imperative sentences of `after` that `before` does not have. */
export function addedImperatives(before: string, after: string): string[] {
  const known = new Set(sentencesOf(before));
  const added = sentencesOf(after).filter((sentence) => !known.has(sentence));
  return added.filter((sentence) => steering.some((pattern) => pattern.test(sentence))).slice(0, sentencesMax);
}

const sentencesOf = (text: string): string[] =>
  text
    .slice(0, textChars)
    .split(/(?<=[.!?])\s+|\n+/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
