package penstock.forget;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;

/** Searches content for many byte strings in one pass (the algorithm of Aho and Corasick), for Sightings. */
final class Automaton {
    /** Called for each occurrence, with the index of the pattern and the position after its last byte. */
    interface Found {
        void at(int pattern, long end);
    }

    private final int[] classes = new int[256]; // the class of each byte; 0 for bytes of no pattern
    private final int width;
    private final int[] next; // for each state and class, the next state
    private final int[] fails; // for each state, that of its longest suffix
    private final int[] ends; // for each state, a pattern that ends in it, or -1
    private final int[] more; // for each state, its next suffix in which a pattern ends, or -1

    Automaton(List<byte[]> patterns) {
        int classCount = 1;
        int states = 1;
        for (byte[] pattern : patterns) {
            states += pattern.length;
            for (byte symbol : pattern) {
                if (classes[symbol & 0xff] == 0) {
                    classes[symbol & 0xff] = classCount++;
                }
            }
        }
        width = classCount;
        next = new int[states * width];
        ends = new int[states];
        more = new int[states];
        fails = new int[states];
        Arrays.fill(ends, -1);
        Arrays.fill(more, -1);
        same = new int[patterns.size()];
        Arrays.fill(same, -1);
        int stateCount = 1;
        for (int index = 0; index < patterns.size(); index++) {
            int state = 0;
            for (byte symbol : patterns.get(index)) {
                int slot = state * width + classes[symbol & 0xff];
                if (next[slot] == 0) {
                    next[slot] = stateCount++;
                }
                state = next[slot];
            }
            same[index] = ends[state]; // another name with the same text
            ends[state] = index;
        }
        link();
    }

    private final int[] same; // for each pattern, another one with the same text, or -1

    private void link() {
        var queue = new ArrayDeque<Integer>();
        for (int symbolClass = 0; symbolClass < width; symbolClass++) {
            if (next[symbolClass] != 0) {
                queue.add(next[symbolClass]);
            }
        }
        while (!queue.isEmpty()) {
            int state = queue.remove();
            int fallback = fails[state];
            more[state] = ends[fallback] >= 0 ? fallback : more[fallback];
            for (int symbolClass = 0; symbolClass < width; symbolClass++) {
                int slot = state * width + symbolClass;
                int target = next[fallback * width + symbolClass];
                if (next[slot] == 0) {
                    next[slot] = target;
                } else {
                    fails[next[slot]] = target;
                    queue.add(next[slot]);
                }
            }
        }
    }

    boolean any(byte[] content) {
        int state = 0;
        for (byte symbol : content) {
            state = next[state * width + classes[symbol & 0xff]];
            if (ends[state] >= 0 || more[state] >= 0) {
                return true;
            }
        }
        return false;
    }

    /**
     * Continues in `state`, 0 at the start, and returns the state at the end. `before`: how many bytes preceded these.
     */
    int run(int state, byte[] content, int length, long before, Found listener) {
        for (int at = 0; at < length; at++) {
            state = next[state * width + classes[content[at] & 0xff]];
            for (int end = ends[state] >= 0 ? state : more[state]; end >= 0; end = more[end]) {
                for (int pattern = ends[end]; pattern >= 0; pattern = same[pattern]) {
                    listener.at(pattern, before + at + 1);
                }
            }
        }
        return state;
    }
}
