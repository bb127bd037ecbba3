using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>Tracks the requests of one stream: those without an answer, and the ids in use. Thread-safe.</summary>
internal sealed class PendingRequests(CallSettings settings)
{
    private readonly object _gate = new();
    private readonly HashSet<string> _ids = [];
    private readonly Dictionary<string, PendingRequest> _unanswered = [];
    private readonly Queue<PendingRequest> _inOrder = [];
    private long _count;
    private long _answeredCount;
    private bool _isComplete;

    /// <summary>Number of requests so far.</summary>
    public long Count
    {
        get
        {
            lock (_gate)
                return _count;
        }
    }

    /// <summary>Number of answered requests.</summary>
    public long AnsweredCount
    {
        get
        {
            lock (_gate)
                return _answeredCount;
        }
    }

    /// <summary>Whether every request is answered and no more will come.</summary>
    public bool IsDone
    {
        get
        {
            lock (_gate)
                return _isComplete && _unanswered.Count == 0;
        }
    }

    /// <summary>How much longer the predictor may stay silent. Not positive if it has failed to respond in time.</summary>
    public TimeSpan TimeUntilSilent
    {
        get
        {
            lock (_gate)
            {
                while (_inOrder.TryPeek(out var first) && first.IsAnswered)
                    _inOrder.Dequeue();
                var idle = _isComplete ? TimeSpan.Zero : settings.Timeout;
                return (_inOrder.TryPeek(out var oldest) ? oldest.Deadline.Remaining : idle) + settings.ResponseGrace;
            }
        }
    }

    /// <summary>Adds a request, unless its id is in use.</summary>
    /// <returns>The request, and whether it was added.</returns>
    public (PendingRequest Request, bool IsAdded) Add(PredictionRequest request)
    {
        lock (_gate)
        {
            var index = _count++;
            var id = request.RequestId.Length > 0 ? request.RequestId : index.ToString(CultureInfo.InvariantCulture);
            var pending = new PendingRequest(index, id, request, Deadline.After(settings.Timeout));
            if (!_ids.Add(id))
                return (pending, false);
            _unanswered.Add(pending.WireId, pending);
            _inOrder.Enqueue(pending);
            return (pending, true);
        }
    }

    /// <summary>Marks the stream as complete: no more requests will be added.</summary>
    public void Complete()
    {
        lock (_gate)
            _isComplete = true;
    }

    /// <summary>Returns the unanswered request with this wire id, or null.</summary>
    public PendingRequest? Find(string wireId)
    {
        lock (_gate)
            return _unanswered.GetValueOrDefault(wireId);
    }

    /// <summary>Returns the unanswered requests in stream order.</summary>
    public PendingRequest[] TakeUnanswered()
    {
        lock (_gate)
            return [.. _inOrder.Where(request => !request.IsAnswered)];
    }

    /// <summary>Marks a request as sent over a call, unless it is answered or was sent over this call before.</summary>
    public bool TryMarkSent(PendingRequest request, int call)
    {
        lock (_gate)
        {
            if (request.IsAnswered || request.LastCall == call)
                return false;
            request.LastCall = call;
            return true;
        }
    }

    /// <summary>Marks a request as not sent, so that the same call can send it again.</summary>
    public void MarkUnsent(PendingRequest request)
    {
        lock (_gate)
            request.LastCall = 0;
    }

    public void MarkAnswered(PendingRequest request)
    {
        lock (_gate)
        {
            request.IsAnswered = true;
            _answeredCount++;
            _unanswered.Remove(request.WireId);
        }
    }

    /// <summary>Makes an id available again, after the caller has read its result.</summary>
    public void ReleaseId(string id)
    {
        lock (_gate)
            _ids.Remove(id);
    }
}
