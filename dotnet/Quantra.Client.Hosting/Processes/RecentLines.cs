namespace Quantra.Client.Hosting.Processes;

/// <summary>The last lines that a process wrote. Thread-safe.</summary>
internal sealed class RecentLines
{
    private const int Capacity = 50;
    private readonly Queue<string> _lines = new(Capacity);

    public void Add(string line)
    {
        lock (_lines)
        {
            if (_lines.Count == Capacity)
                _lines.Dequeue();
            _lines.Enqueue(line);
        }
    }

    public IReadOnlyList<string> Snapshot()
    {
        lock (_lines)
            return _lines.ToArray();
    }
}
