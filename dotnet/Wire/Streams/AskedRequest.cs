using System.Diagnostics;
using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>A request of a stream.</summary>
/// <param name="place">Among all, from 0; its name on the wire, where no two are the same.</param>
/// <param name="name">Under which the caller has its result.</param>
/// <param name="request">To answer.</param>
/// <param name="deadline">Of its answer.</param>
internal sealed class AskedRequest(long place, string name, PredictionRequest request, Deadline deadline)
{
    private readonly long _began = Stopwatch.GetTimestamp();

    /// <summary>Its name on the wire.</summary>
    public string WireId { get; } = place.ToString(CultureInfo.InvariantCulture);

    /// <summary>Under which the caller has its result.</summary>
    public string Name => name;

    /// <summary>To answer.</summary>
    public PredictionRequest Request => request;

    /// <summary>Of its answer.</summary>
    public Deadline Deadline => deadline;

    /// <summary>Since it was asked.</summary>
    public TimeSpan Took => Stopwatch.GetElapsedTime(_began);

    /// <summary>How often it was sent and answered.</summary>
    public int Attempts { get; set; }

    /// <summary>The number of the call that it was sent over last; 0 = of none.</summary>
    public int SentOver { get; set; }

    /// <summary>Whether it has its result.</summary>
    public bool IsAnswered { get; set; }
}
