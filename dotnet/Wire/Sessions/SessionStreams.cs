using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>
/// The sessions of a predictor: their names, and the call that they share, begun with the first of them and ended with the last.
/// Thread-safe.
/// </summary>
/// <param name="door">The way to the predictor.</param>
/// <param name="ending">Ends all.</param>
internal sealed class SessionStreams(IStreamDoor door, CancellationToken ending)
{
    private readonly object _gate = new();
    private readonly HashSet<string> _names = [];
    private SessionStream? _current;
    private int _openings;

    /// <summary>Keeps a name for one session.</summary>
    /// <exception cref="QuantraException">DUPLICATE_ID: another one has it.</exception>
    public void Claim(string name)
    {
        lock (_gate)
        {
            if (_names.Add(name))
                return;
        }

        throw new QuantraError(
            QuantraStatus.InvalidArgument,
            QuantraReason.DuplicateId,
            $"session '{name}' is open already; dispose it first, or give this one another id",
            new Dictionary<string, string> { ["session_id"] = name }).ToException();
    }

    /// <summary>Others may have the name.</summary>
    public void Free(string name)
    {
        lock (_gate)
            _names.Remove(name);
    }

    /// <summary>An id for the wire that no other session has: of one that was lost, nobody knows whether it is still there.</summary>
    public string NextId(string name) => string.Create(CultureInfo.InvariantCulture, $"{name}#{Interlocked.Increment(ref _openings)}");

    /// <summary>The call for one more session; another one if there is none or it has ended.</summary>
    public SessionStream Enter()
    {
        lock (_gate)
        {
            if (_current is null or { IsOver: true })
                _current = SessionStream.Begin(door, ending);
            _current.Sessions++;
            return _current;
        }
    }

    /// <summary>One session fewer on a call.</summary>
    public void Leave(SessionStream stream)
    {
        lock (_gate)
        {
            if (--stream.Sessions > 0)
                return;
            stream.End();
            if (_current == stream)
                _current = null;
        }
    }
}
