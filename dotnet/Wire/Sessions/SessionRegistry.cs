using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>
/// Session names of a predictor and the call that its sessions share. The first session starts the call, the last one ends it.
/// Thread-safe.
/// </summary>
/// <param name="transport">Opens the call.</param>
/// <param name="ending">Ends all sessions.</param>
internal sealed class SessionRegistry(IStreamTransport transport, CancellationToken ending)
{
    private readonly object _gate = new();
    private readonly HashSet<string> _names = [];
    private SessionCall? _current;
    private int _openings;

    /// <summary>Reserves a session name.</summary>
    /// <exception cref="QuantraException">DUPLICATE_ID: another session has this name.</exception>
    public void ReserveName(string name)
    {
        lock (_gate)
        {
            if (_names.Add(name))
                return;
        }

        throw new QuantraError(
            QuantraStatus.InvalidArgument,
            QuantraReason.DuplicateId,
            $"session '{name}' is already open; dispose it first, or use another id",
            new Dictionary<string, string> { ["session_id"] = name }).ToException();
    }

    public void ReleaseName(string name)
    {
        lock (_gate)
            _names.Remove(name);
    }

    /// <summary>Returns a wire id that no earlier session had: a lost session may still exist at the server.</summary>
    public string NextId(string name) => string.Create(CultureInfo.InvariantCulture, $"{name}#{Interlocked.Increment(ref _openings)}");

    /// <summary>Returns the shared call for one more session, and starts it if necessary.</summary>
    public SessionCall AcquireCall()
    {
        lock (_gate)
        {
            if (_current is null or { HasEnded: true })
                _current = SessionCall.Start(transport, ending);
            _current.Sessions++;
            return _current;
        }
    }

    /// <summary>Removes a session from a call.</summary>
    public void ReleaseCall(SessionCall call)
    {
        lock (_gate)
        {
            if (--call.Sessions > 0)
                return;
            call.Complete();
            if (_current == call)
                _current = null;
        }
    }
}
