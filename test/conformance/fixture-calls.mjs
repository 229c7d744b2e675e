/**
 * The tools of the conformance fixture that take time and send notifications: logs, progress, changed lists, and a stream that is
 * closed during its call. Not here: tools that ask the client (fixture-input.mjs), tools that answer at once (fixture-content.mjs).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { text } from './fixture-content.mjs';

const pauseMs = 50;

/**
 * The extra tool and prompt that the triggers add or remove. Process-wide, because a modern server object is created for each
 * request.
 */
export const extras = { tool: false, prompt: false };

export const callTools = {
  test_tool_with_logging: {
    description: 'Logs three times',
    run: async (_args, { mcpReq }) => {
      await mcpReq.log('info', 'Tool execution started');
      await sleep(pauseMs);
      await mcpReq.log('info', 'Tool processing data');
      await sleep(pauseMs);
      await mcpReq.log('info', 'Tool execution completed');
      return text('Tool with logging executed successfully');
    },
  },
  test_logging_tool: {
    description: 'Logs once, where the client wants logs',
    run: async (_args, { mcpReq }) => {
      await mcpReq.log('info', 'a log line');
      return text('logged');
    },
  },
  test_tool_with_progress: {
    description: 'Reports progress three times',
    run: async (_args, { mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        if (progress > 0) await sleep(pauseMs);
        if (progressToken === undefined) continue;
        const params = { progressToken, progress, total: 100, message: `Completed step ${progress} of 100` };
        await mcpReq.notify({ method: 'notifications/progress', params });
      }
      return text(String(progressToken ?? 'no token'));
    },
  },
  test_reconnection: {
    description: 'Closes the stream of its call, where there is one, and answers later',
    run: async (_args, { http }) => {
      await sleep(pauseMs);
      http?.closeSSE?.();
      await sleep(2 * pauseMs);
      return text('Reconnection test completed successfully');
    },
  },
  test_trigger_tool_change: {
    description: 'Adds a tool, or takes it away again',
    run: async (_args, { changed }) => {
      extras.tool = !extras.tool;
      await changed.tools();
      return text('tools changed');
    },
  },
  test_trigger_prompt_change: {
    description: 'Adds a prompt, or takes it away again',
    run: async (_args, { changed }) => {
      extras.prompt = !extras.prompt;
      await changed.prompts();
      return text('prompts changed');
    },
  },
};

export const extraTool = { test_extra_tool: { description: 'Comes and goes', run: () => text('here') } };
export const extraPrompt = {
  test_extra_prompt: {
    description: 'Comes and goes',
    run: () => ({ messages: [{ role: 'user', content: { type: 'text', text: 'here' } }] }),
  },
};
