namespace Quantra.Client.Hosting.Processes;

/// <summary>The last lines that a process wrote. Thread-safe.</summary>
internal sealed class LastLines
{
    private const int Most = 50;
    private readonly Queue<string> _lines = new(Most);

    /// <summary>Keeps a line, and drops the oldest beyond 50.</summary>
    public void Add(string line)
    {
        lock (_lines)
        {
            if (_lines.Count == Most)
                _lines.Dequeue();
            _lines.Enqueue(line);
        }
    }

    /// <summary>All that are kept, oldest first.</summary>
    public IReadOnlyList<string> Snapshot()
    {
        lock (_lines)
            return _lines.ToArray();
    }
}
