using System.Diagnostics;
using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>A request of a stream and the state of its answer.</summary>
/// <param name="index">Position in the stream, from 0.</param>
/// <param name="id">Id under which the caller gets the result.</param>
/// <param name="request">The caller's request.</param>
/// <param name="deadline">Deadline of the response.</param>
internal sealed class PendingRequest(long index, string id, PredictionRequest request, Deadline deadline)
{
    private readonly long _started = Stopwatch.GetTimestamp();

    /// <summary>Id on the wire, unique within the stream even if the caller reuses an id.</summary>
    public string WireId { get; } = index.ToString(CultureInfo.InvariantCulture);

    public string Id => id;

    public PredictionRequest Request => request;

    public Deadline Deadline => deadline;

    /// <summary>Time since the request was taken from the caller.</summary>
    public TimeSpan Elapsed => Stopwatch.GetElapsedTime(_started);

    /// <summary>How many responses there were, rejections included.</summary>
    public int Attempts { get; set; }

    /// <summary>Number of the call that sent the request last; 0 = not sent.</summary>
    public int LastCall { get; set; }

    public bool IsAnswered { get; set; }
}
