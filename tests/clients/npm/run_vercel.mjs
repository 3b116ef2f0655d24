// Vercel's `ai` with its providers for OpenAI, Anthropic and whoever is like OpenAI.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";
import * as harness from "./harness.mjs";

const City = z.object({ name: z.enum(["Lima", "Rome"]), people: z.number().int() });

const providers = {
  responses: (settings) => createOpenAI(settings).responses,
  chat: (settings) => createOpenAI(settings).chat,
  compatible: (settings) =>
    createOpenAICompatible({
      ...settings,
      name: "penstock",
      includeUsage: true,
      supportsStructuredOutputs: true,
    }),
  anthropic: (settings) => createAnthropic(settings),
};
const model = (ask) =>
  providers[ask.via]({ baseURL: `${ask.url}/v1`, apiKey: "none" })(ask.model);
// With `store` it names what was said before by ids, which a gateway that stores nothing refuses.
const providerOptions = { openai: { store: false } };
const asking = (ask, prompt) => ({ model: model(ask), prompt, providerOptions, maxRetries: 0 });
const tokensOf = ({ inputTokens, outputTokens }) => [inputTokens, outputTokens];

/** A stream tells of its errors by a callback, and ends as if nothing were. */
function streaming(fields) {
  let failure;
  const result = streamText({ ...fields, onError: ({ error }) => (failure ??= error) });
  const check = () => {
    if (failure) throw failure;
  };
  return { result, check };
}

await harness.serve(
  {
    async text(ask) {
      const { text, usage } = await generateText({
        ...asking(ask, harness.HELLO),
        instructions: harness.SYSTEM,
        maxOutputTokens: ask.max_tokens,
        // Of these two it sends Anthropic only the first.
        temperature: "top_p" in ask.fields ? undefined : harness.TEMPERATURE,
        topP: ask.fields.top_p,
      });
      return { text, tokens: tokensOf(usage) };
    },

    async stream(ask) {
      const { result, check } = streaming({
        ...asking(ask, harness.COUNT),
        maxOutputTokens: ask.max_tokens,
      });
      const texts = [];
      for await (const text of result.textStream) texts.push(text);
      check();
      return { texts, tokens: tokensOf(await result.usage) };
    },

    async conversation(ask) {
      const { prompt, ...fields } = asking(ask, "");
      const messages = [];
      const texts = [];
      for (const content of [harness.HELLO, harness.AGAIN]) {
        messages.push({ role: "user", content });
        const { text, response } = await generateText({ ...fields, messages });
        messages.push(...response.messages);
        texts.push(text);
      }
      return { texts };
    },

    async cancel(ask) {
      const controller = new AbortController();
      const { result } = streaming({
        ...asking(ask, harness.COUNT),
        abortSignal: controller.signal,
      });
      for await (const text of result.textStream) {
        controller.abort();
        return { texts: [text] };
      }
    },

    async tools(ask) {
      const calls = [];
      const weather = tool({
        description: "The weather in a city",
        inputSchema: z.object({ city: z.string() }),
        execute: async (args) => {
          calls.push({ name: "weather", arguments: args });
          return harness.weather(args);
        },
      });
      const fields = {
        ...asking(ask, harness.WEATHER),
        tools: { weather },
        stopWhen: isStepCount(5),
      };
      if (!ask.stream) return { text: (await generateText(fields)).text, calls };
      const { result, check } = streaming(fields);
      const text = await result.text;
      check();
      return { text, calls };
    },

    async structured(ask) {
      const { output } = await generateText({
        ...asking(ask, harness.CITY),
        output: Output.object({ schema: City, name: "city" }),
      });
      return { value: output };
    },

    async embeddings(ask) {
      const settings = { baseURL: `${ask.url}/v1`, apiKey: "none" };
      const provider =
        ask.via === "compatible"
          ? createOpenAICompatible({ ...settings, name: "penstock" })
          : createOpenAI(settings);
      const { embeddings } = await embedMany({
        model: provider.embeddingModel(ask.model),
        values: ask.texts,
        maxRetries: 0,
      });
      return { vectors: embeddings };
    },
  },
  (error) => {
    const described = harness.failureOf(
      error,
      error?.statusCode,
      error?.responseHeaders?.["retry-after"],
    );
    // Its classes are told apart by their name, not by their constructor.
    return { ...described, classes: [error?.name, ...described.classes] };
  },
);
